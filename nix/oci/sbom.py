"""What is in an image, as SPDX 2.3 (JSON), from the locks that it was made of."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from .image import Image

_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-Image"


def spdx(image: Image, created: str) -> str:
    """The SPDX document of an image; `created` is a time as in RFC 3339."""
    digest = image.manifest.digest
    own = {
        "SPDXID": _IMAGE,
        "name": image.name,
        "versionInfo": digest,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [_checksum(digest.removeprefix("sha256:"))],
        "primaryPackagePurpose": "CONTAINER",
    }
    contents = {_identifier(package): package for layer in image.layers for package in layer["packages"]}
    relationships = [(_DOCUMENT, "DESCRIBES", _IMAGE)]
    relationships += [(_IMAGE, "CONTAINS", identifier) for identifier in contents]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": image.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{image.name}-{digest.removeprefix('sha256:')}",
        "creationInfo": {"created": created, "creators": ["Tool: cog-triton"]},
        "packages": [own, *(_package(key, package) for key, package in contents.items())],
        "relationships": [
            {"spdxElementId": left, "relationshipType": kind, "relatedSpdxElement": right}
            for left, kind, right in relationships
        ],
    }
    return json.dumps(document, indent=2)


def _package(identifier: str, package: dict[str, Any]) -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": package["name"],
        "versionInfo": package["version"],
        "packageFileName": package["file"].rpartition("/")[2],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [_checksum(package["sha256"])],
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": _purl(package),
            }
        ],
    }


def _purl(package: dict[str, Any]) -> str:
    kind = {"debian": "deb/debian", "wheel": "pypi"}.get(package["type"], "generic")
    name = package["name"].lower().replace("_", "-") if kind == "pypi" else package["name"]
    return f"pkg:{kind}/{quote(name)}@{quote(package['version'])}"


def _identifier(package: dict[str, Any]) -> str:
    text = f"{package['type']}-{package['name']}-{package['version']}"
    return f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', text)}"


def _checksum(sha256: str) -> dict[str, str]:
    return {"algorithm": "SHA256", "checksumValue": sha256}
