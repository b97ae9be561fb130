import json
import tracemalloc

import pytest

from shared.artifact import Manifest
from shared.artifact.manifest import name_problem
from shared.errors import EngineArchiveMalformed, EngineArchiveVersion
from tests.unit.artifact.archives import CONTENTS, listing

MANIFEST = listing(CONTENTS)


def changed(**keys) -> bytes:
    return json.dumps({**json.loads(MANIFEST.to_bytes()), **keys}).encode()


def test_what_is_written_can_be_read():
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST


def test_keys_of_a_newer_writer_are_ignored():
    assert Manifest.from_bytes(changed(quantization="int4")) == MANIFEST


@pytest.mark.parametrize("version", [0, 2])
def test_another_format_version_is_named_whatever_else_has_changed(version):
    with pytest.raises(EngineArchiveVersion, match=f"format version {version}; this runner reads 1"):
        Manifest.from_bytes(json.dumps({"format_version": version}).encode())


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (b"\xff", "manifest.json is not JSON"),
        (b"[]", "manifest.json must be an object"),
        (changed(format_version=True), "manifest.json.format_version"),
        (changed(engine=None), "manifest.json.engine"),
        (changed(ranks=0), "manifest.json.ranks"),
        (changed(files=[{"name": "a", "size": -1, "sha256": "0" * 64}]), "manifest.json.files.0.size"),
        (changed(files=[{"name": "a", "size": 10**400, "sha256": "0" * 64}]), "manifest.json.files.0.size"),
        (changed(gpu_bytes=10**400), "manifest.json.gpu_bytes"),
        (changed(files=[{"name": "a", "size": 1, "sha256": "0" * 64}] * 65_537), "manifest.json.files"),
        (changed(files=[{"name": "a", "size": 1, "sha256": "0" * 63}]), "manifest.json.files.0.sha256"),
        (
            changed(files=[{"name": "a", "size": 1, "sha256": "0" * 64}] * 2),
            "manifest.json lists 'a' more than once",
        ),
        (changed(files=[{"name": "../a", "size": 1, "sha256": "0" * 64}]), "manifest.json.files.0.name"),
    ],
)
def test_what_is_no_manifest_is_refused_and_named(text, named):
    with pytest.raises(EngineArchiveMalformed) as caught:
        Manifest.from_bytes(text)
    assert named in str(caught.value)


def test_many_faults_take_no_more_memory_than_one():
    """A manifest of two megabytes took 1.5 GB."""
    tracemalloc.start()
    try:
        with pytest.raises(EngineArchiveMalformed, match=r"manifest\.json\.files\.0"):
            Manifest.from_bytes(changed(files=[0] * 60_000))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_length_does_not_depend_on_the_digests():
    contents = {name: data[::-1] for name, data in CONTENTS.items()}
    assert len(listing(contents).to_bytes()) == len(MANIFEST.to_bytes())


@pytest.mark.parametrize("name", ["a", "engine/rank0.engine", "größe.bin", ".hidden", "a b", "a" * 255])
def test_plain_names_are_good(name):
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "/a",
        "..",
        "a/../b",
        "./a",
        "a//b",
        "a/",
        "a\0b",
        "a\nb",
        "\udcff",
        "a" * 256,
        "ab/" * 400 + "a",
    ],
)
def test_other_names_are_not(name):
    assert name_problem(name) is not None
