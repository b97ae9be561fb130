"""What is published about an image's contents, and what it means for the image."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import pytest

from nix.oci.image import Blob, Image
from nix.oci.problem import Problem
from nix.oci.vex import JUDGEMENTS, openvex
from shared.layout import PROJECT_ROOT

COMPONENTS = {path.stem: json.loads(path.read_text()) for path in sorted(JUDGEMENTS.glob("*.json"))}
# Of OpenVEX 0.2.0: what is required, what else there may be, and the words for a status.
DOCUMENT = {"@context", "@id", "author", "timestamp", "version", "statements"}
DOCUMENTS_OTHERS = {"role", "last_updated", "tooling"}
STATEMENT = {"vulnerability", "products", "status"}
JUSTIFICATIONS = {
    "component_not_present",
    "vulnerable_code_not_present",
    "vulnerable_code_not_in_execute_path",
    "vulnerable_code_cannot_be_controlled_by_adversary",
    "inline_mitigations_already_exist",
}
REASONS = {
    "not_affected": {"justification", "impact_statement"},
    "affected": {"action_statement"},
    "fixed": {"status_notes"},
}


def image(**packages: str) -> Image:
    layer = {"packages": [{"name": name, "version": version} for name, version in packages.items()]}
    return Image("some-runner", [layer], Blob(b""), Blob(b"{}"), "skopeo")


def judged() -> dict[str, str]:
    return {component["package"]: component["version"] for component in COMPONENTS.values()}


def locked() -> dict[str, set[str]]:
    """The versions of every package that images are made of."""
    found: dict[str, set[str]] = {}
    for path in (PROJECT_ROOT / "requirements").glob("*.txt"):
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE):
            found.setdefault(name, set()).add(version)
    publishers = json.loads((PROJECT_ROOT / "nix/locks/publishers.json").read_text())
    for artifact in publishers["artifacts"]:
        found.setdefault(artifact["name"], set()).add(artifact["version"])
    return found


@pytest.mark.parametrize("packages", [judged(), {}], ids=["every component", "none"])
def test_the_document_is_openvex(packages):
    document = json.loads(openvex(image(**packages)))
    assert document.keys() >= DOCUMENT
    assert document.keys() <= DOCUMENT | DOCUMENTS_OTHERS
    assert document["@context"] == "https://openvex.dev/ns/v0.2.0"
    assert re.fullmatch("https://openvex.dev/docs/public/vex-[0-9a-f]{64}", document["@id"])
    assert datetime.fromisoformat(document["timestamp"]).tzinfo
    assert document["version"] == 1
    for statement in document["statements"]:
        assert statement.keys() == STATEMENT | REASONS[statement["status"]]
        assert statement.get("justification", "component_not_present") in JUSTIFICATIONS
        assert re.fullmatch(r"CVE-\d{4}-\d{4,}", statement["vulnerability"]["name"])
        assert all(len(statement[field]) > 20 for field in REASONS[statement["status"]])
        (product,) = statement["products"]
        assert product.keys() == {"@id", "subcomponents"}
        assert product["@id"].startswith("pkg:oci/some-runner@sha256%3A")
        (part,) = product["subcomponents"]
        assert re.fullmatch(r"pkg:pypi/[\w-]+@[\d.]+", part["@id"])
        assert part["identifiers"] == {"purl": part["@id"]}


def test_every_flaw_has_one_statement():
    names = [name for component in COMPONENTS.values() for name in component["vulnerabilities"]]
    document = json.loads(openvex(image(**judged())))
    assert [statement["vulnerability"]["name"] for statement in document["statements"]] == names
    assert len(names) == len(set(names))
    assert len(names) >= 90


def test_what_an_image_does_not_have_cannot_affect_it():
    document = json.loads(openvex(image(**{"nvidia-pytriton": judged()["nvidia-pytriton"]})))
    of_others = [
        statement
        for statement in document["statements"]
        if "nvidia-pytriton" not in statement["products"][0]["subcomponents"][0]["@id"]
    ]
    assert of_others
    assert {statement["justification"] for statement in of_others} == {"component_not_present"}


def test_the_same_image_has_the_same_document():
    assert openvex(image(**judged())) == openvex(image(**judged()))
    assert json.loads(openvex(image()))["@id"] != json.loads(openvex(image(**judged())))["@id"]


def test_another_version_is_not_judged_by_what_held_for_the_old_one():
    with pytest.raises(Problem, match=r"some-runner has tensorrt-llm 1\.3\.0, but its flaws were judged for"):
        openvex(image(**{"tensorrt-llm": "1.3.0"}))


@pytest.mark.parametrize("name", COMPONENTS)
def test_the_version_that_was_judged_is_the_one_that_is_locked(name):
    """After a change of a version: look at each flaw in nix/vex again, then change `version` and `judged`."""
    component = COMPONENTS[name]
    assert locked()[component["package"]] == {component["version"]}


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_reason_is_known_and_needed(name):
    component = COMPONENTS[name]
    named = {flaw["reason"] for flaw in component["vulnerabilities"].values()}
    assert named == component["reasons"].keys()


def test_the_data_is_where_the_programs_of_images_take_it_from():
    pattern = re.search(
        r'"nix/oci/\[\^/\]\+\[\.\]py\|([^"]*)"', (PROJECT_ROOT / "nix/sources.nix").read_text()
    )
    assert pattern
    assert all(re.fullmatch(pattern[1], f"nix/vex/{path.name}") for path in Path(JUDGEMENTS).iterdir())
