"""What is in an image, as SPDX 2.3 (JSON), from the locks that it was made from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from .image import Image

_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-Image"
_OURS = "Organization: cog-triton"
_OUR_LICENCE = "Apache-2.0"
_LICENCE_REF = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")


def spdx(image: Image, created: str) -> str:
    """The SPDX document of an image; `created` is a time as in RFC 3339.

    It has the elements that the NTIA requires.
    """
    digest = image.manifest.digest
    whole = {
        "SPDXID": _IMAGE,
        "name": image.name,
        "versionInfo": digest,
        "supplier": _OURS,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [_checksum(digest)],
        "licenseDeclared": "NOASSERTION",
        "primaryPackagePurpose": "CONTAINER",
        "externalRefs": [_reference(f"pkg:oci/{image.name}@{quote(digest, safe='')}?arch=amd64")],
    }
    packages = [whole, *(_own(layer) for layer in image.layers if layer["own"])]
    contents = {_identifier(package): package for layer in image.layers for package in layer["packages"]}
    packages += [_package(key, package) for key, package in contents.items()]
    relationships = [(_DOCUMENT, "DESCRIBES", _IMAGE)]
    relationships += [(_IMAGE, "CONTAINS", package["SPDXID"]) for package in packages[1:]]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": _DOCUMENT,
        "name": image.name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{image.name}-{digest.removeprefix('sha256:')}",
        "creationInfo": {"created": created, "creators": [_OURS, "Tool: cog-triton"]},
        "packages": packages,
        "relationships": [
            {"spdxElementId": left, "relationshipType": kind, "relatedSpdxElement": right}
            for left, kind, right in relationships
        ],
        "hasExtractedLicensingInfos": _extracted(packages),
    }
    return json.dumps(document, indent=2)


def _own(layer: dict[str, Any]) -> dict[str, Any]:
    """What we made ourselves: a layer of its own; the checksum is that of its tar."""
    own = layer["own"]
    return {
        "SPDXID": _identifier({"type": "own", **own}),
        "name": own["name"],
        "versionInfo": own["version"],
        "supplier": _OURS,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [_checksum(layer["diff_id"])],
        "licenseDeclared": _OUR_LICENCE,
        "externalRefs": [_reference(f"pkg:generic/{quote(own['name'])}@{quote(own['version'])}")],
    }


def _package(identifier: str, package: dict[str, Any]) -> dict[str, Any]:
    described = {
        "SPDXID": identifier,
        "name": package["name"],
        "versionInfo": package["version"],
        "supplier": package["supplier"],
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseDeclared": package["licence"],
        "externalRefs": [_reference(_purl(package))],
    }
    if package["type"] == "commit":  # which identifies its content
        described["sourceInfo"] = f"the commit {package['commit']} of its repository"
    else:
        described["packageFileName"] = package["file"].rpartition("/")[2]
        described["checksums"] = [_checksum(package["sha256"])]
    if source := package.get("source"):
        described["originator"] = package["originator"]
        described["sourceInfo"] = f"built from the source package {source['name']} {source['version']}"
    return described


def _purl(package: dict[str, Any]) -> str:
    version = quote(package["version"], safe=":")
    match package["type"]:
        case "debian":
            source = package["source"]
            qualifiers = {"arch": package["architecture"], "distro": package["distro"]}
            if (source["name"], source["version"]) != (package["name"], package["version"]):
                qualifiers["upstream"] = f"{source['name']}@{source['version']}"
            return f"pkg:deb/debian/{quote(package['name'])}@{version}?{urlencode(qualifiers)}"
        case "wheel":
            return f"pkg:pypi/{quote(package['name'].lower().replace('_', '-'))}@{version}"
        case _:
            return f"pkg:generic/{quote(package['name'])}@{version}"


def _extracted(packages: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Licences without an SPDX identifier: their names, and where their texts are."""
    found = {name for package in packages for name in _LICENCE_REF.findall(package["licenseDeclared"])}
    return [
        {
            "licenseId": name,
            "name": name.removeprefix("LicenseRef-"),
            "extractedText": "In the image: /usr/share/doc/NAME/copyright, or the folder"
            " NAME-VERSION.dist-info.",
        }
        for name in sorted(found)
    ]


def _reference(purl: str) -> dict[str, str]:
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}


def _identifier(package: dict[str, Any]) -> str:
    text = f"{package['type']}-{package['name']}-{package['version']}"
    return f"SPDXRef-{re.sub('[^A-Za-z0-9.-]', '-', text)}"


def _checksum(sha256: str) -> dict[str, str]:
    return {"algorithm": "SHA256", "checksumValue": sha256.removeprefix("sha256:")}
