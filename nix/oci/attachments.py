"""What belongs to an image and is kept beside it in the registry: its SBOM, what the published flaws of
its contents mean for it (VEX), and how it was made.

Each is an artifact with the image as its `subject` (OCI image 1.1). A registry that supports referrers lists
them; for others, the tag `sha256-HEX` does (distribution 1.1, "referrers tag schema").

    ci/attached HOST/REPOSITORY:TAG          the types of what is attached to an image
    ci/attached HOST/REPOSITORY:TAG TYPE     writes the attachment of a type to standard output
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from .image import MANIFEST, Blob
from .problem import Problem
from .program import running
from .registry import INDEX, Registry

if TYPE_CHECKING:
    from .image import Image

SBOM = "application/spdx+json"
VEX = "application/openvex+json"
PROVENANCE = "application/vnd.in-toto+json"
_EMPTY = Blob(b"{}")
_EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


def attach(image: Image, reference: str, kind: str, document: bytes) -> str:
    """Attach a document to an image in the repository of `reference`; return its digest. Raises Problem."""
    registry = Registry(reference)
    subject = image.manifest
    if registry.manifest(subject.digest) is None:
        raise Problem(
            f"{registry.host}/{registry.repository} does not have {subject.digest}: push the image first."
        )
    content = Blob(document)
    artifact = Blob(
        _json(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "artifactType": kind,
                "config": _EMPTY.described(_EMPTY_TYPE),
                "layers": [content.described(kind)],
                "subject": subject.described(MANIFEST),
            }
        )
    )
    for blob in (_EMPTY, content):
        registry.put_blob(blob)
    if not registry.put_manifest(artifact.digest, artifact.content):
        described = {**artifact.described(MANIFEST), "artifactType": kind}
        listed = _listed(registry, subject.digest)
        if described not in listed:
            index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [*listed, described]}
            registry.put_manifest(_tag(subject.digest), _json(index), INDEX)
    return artifact.digest


def attached(reference: str) -> list[dict[str, Any]]:
    """The descriptors of what is attached to an image in a registry, oldest first. Raises Problem."""
    registry = Registry(reference)
    return _listed(registry, _digest(registry, reference))


def read(reference: str, kind: str) -> bytes:
    """The newest attachment of a type. Raises Problem."""
    registry = Registry(reference)
    of_kind = [
        row for row in _listed(registry, _digest(registry, reference)) if row.get("artifactType") == kind
    ]
    if not of_kind:
        raise Problem(f"Nothing of the type {kind} is attached to {reference}.")
    newest = of_kind[-1]["digest"]
    try:
        digest = json.loads(registry.manifest(newest) or b"")["layers"][0]["digest"]
    except (ValueError, LookupError, TypeError):
        raise Problem(
            f"{registry.host} lists {newest}, and has no such attachment: attach it again."
        ) from None
    return registry.blob(digest)


def _listed(registry: Registry, digest: str) -> list[dict[str, Any]]:
    listed = registry.referrers(digest)
    if listed is None:
        index = registry.manifest(_tag(digest))
        listed = [] if index is None else registry.listed(index)
    return listed


def _digest(registry: Registry, reference: str) -> str:
    name = reference.rpartition("/")[2]
    if "@" in name:
        return name.partition("@")[2]
    content = registry.manifest(name.partition(":")[2] or "latest")
    if content is None:
        raise Problem(f"{registry.host} does not have {reference}.")
    return Blob(content).digest


def _tag(digest: str) -> str:
    return digest.replace(":", "-")


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    match sys.argv[1:]:
        case [reference]:
            with running():
                for row in attached(reference):
                    print(row.get("artifactType", "unknown"), row["digest"])
        case [reference, kind]:
            with running():
                sys.stdout.buffer.write(read(reference, kind))
        case _:
            sys.exit("usage: ci/attached HOST/REPOSITORY:TAG [TYPE]")


if __name__ == "__main__":
    main()
