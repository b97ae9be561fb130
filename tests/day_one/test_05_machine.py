"""The first minutes: what the machine has and lacks, and which version this is."""

from __future__ import annotations

from shared import VERSION


def test_the_version(user):
    assert user.types("cog-triton --version").text == f"cog-triton {VERSION}\n"
    assert f"## {VERSION}" in user.types("cat CHANGELOG.md").text


def test_what_the_machine_has_and_lacks(user):
    found = {check["name"]: check for check in user.types("cog-triton doctor --json").json["checks"]}
    assert {"nix", "gpu"} <= found.keys()
    assert found["nix"]["findings"][0]["message"]


def test_the_commands_there_are(user):
    listed = user.types("make help").text
    assert all(name in listed for name in ("demo", "serve", "test-images"))
