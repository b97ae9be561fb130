"""What the published flaws of an image's components mean for that image, as OpenVEX 0.2.0 (JSON).

What was judged is data, in nix/vex: a file for each component, with the version that was judged.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .problem import Problem

if TYPE_CHECKING:
    from .image import Image

JUDGEMENTS = Path(__file__).parents[1] / "vex"
_CONTEXT = "https://openvex.dev/ns/v0.2.0"
_DETAILS = "https://nvd.nist.gov/vuln/detail/"
# The field of a statement that takes the reason.
_REASON_FIELDS = {
    "not_affected": "impact_statement",
    "affected": "action_statement",
    "fixed": "status_notes",
}


def openvex(image: Image) -> str:
    """The OpenVEX document of an image.

    It is named by its content. Raises Problem where a component has another version than was judged.
    """
    components = [json.loads(path.read_text()) for path in sorted(JUDGEMENTS.glob("*.json"))]
    versions = {
        package["name"].lower().replace("_", "-"): package["version"]
        for layer in image.layers
        for package in layer["packages"]
    }
    document = {
        "@context": _CONTEXT,
        "author": "cog-triton",
        "role": "Document Creator",
        "timestamp": f"{max(component['judged'] for component in components)}T00:00:00Z",
        "version": 1,
        "statements": [
            statement for component in components for statement in _statements(image, component, versions)
        ],
    }
    name = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps({"@id": f"https://openvex.dev/docs/public/vex-{name}", **document}, indent=2)


def _statements(image: Image, component: dict[str, Any], versions: dict[str, str]) -> list[dict[str, Any]]:
    package = component["package"]
    version = versions.get(package)
    if version not in (None, component["version"]):
        raise Problem(
            f"{image.name} has {package} {version}, but its flaws were judged for {component['version']}:"
            f" look at each in nix/vex, and then change the version there."
        )
    part = f"pkg:pypi/{package}@{component['version']}"
    product = {
        "@id": f"pkg:oci/{image.name}@{quote(image.manifest.digest, safe='')}",
        "subcomponents": [{"@id": part, "identifiers": {"purl": part}}],
    }
    absent = {
        "status": "not_affected",
        "justification": "component_not_present",
        "statement": f"This image does not have {component['component']}.",
    }
    return [
        {
            "vulnerability": {"@id": f"{_DETAILS}{name}", "name": name, "description": flaw["flaw"]},
            "products": [product],
            **_judged(component["reasons"][flaw["reason"]] if version else absent),
        }
        for name, flaw in component["vulnerabilities"].items()
    ]


def _judged(reason: dict[str, str]) -> dict[str, str]:
    """The fields of a statement that say what was judged, and why."""
    kept = {name: value for name, value in reason.items() if name != "statement"}
    return {**kept, _REASON_FIELDS[reason["status"]]: reason["statement"]}
