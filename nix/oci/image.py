"""An image: its layers, its config, and the manifest whose digest a push produces.

    python3 -m oci.image SPEC RESULT LIBRARY...

SPEC is JSON: {"name", "layers" (paths of records), "config" (the `config` of the OCI image config),
"created", "python" and "skopeo" (programs), "base" (the SPEC of the image that it was made from, or null)}.
RESULT becomes an executable file with the verbs of verbs.py; LIBRARY are the folders that it imports.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_BASE_NAME = "org.opencontainers.image.base.name"
_BASE_DIGEST = "org.opencontainers.image.base.digest"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"

_PROGRAM = """#!{python} -IB
import sys
sys.path[:0] = {library!r}
from oci.verbs import main
main({spec!r})
"""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their digest."""

    content: bytes

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.content).hexdigest()}"

    def described(self, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": self.digest, "size": len(self.content)}


@dataclass(frozen=True, slots=True)
class Image:
    """An image whose layers are in the Nix store, and how it leaves it."""

    name: str
    layers: list[dict[str, Any]]
    config: Blob
    manifest: Blob
    skopeo: str

    @classmethod
    def of(cls, spec: dict[str, Any]) -> Image:
        layers = [json.loads(Path(path).read_text()) for path in spec["layers"]]
        own = spec["config"]
        if base := spec.get("base"):
            labels = {_BASE_NAME: base["name"], _BASE_DIGEST: cls.of(base).manifest.digest}
            own = {**own, "Labels": {**own["Labels"], **labels}}
        config = Blob(
            _json(
                {
                    "architecture": "amd64",
                    "os": "linux",
                    "created": spec["created"],
                    "config": own,
                    "rootfs": {"type": "layers", "diff_ids": [layer["diff_id"] for layer in layers]},
                    "history": [
                        {"created": spec["created"], "created_by": layer["name"], "comment": "cog-triton"}
                        for layer in layers
                    ],
                }
            )
        )
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.described(_CONFIG),
            "layers": [
                {"mediaType": f"{_LAYER}+gzip", "digest": layer["digest"], "size": layer["size"]}
                for layer in layers
            ],
        }
        return cls(spec["name"], layers, config, Blob(_json(manifest)), spec["skopeo"])

    @property
    def names(self) -> list[str]:
        """Its names once it is loaded: `latest`, and one with the first letters of its digest."""
        letters = self.manifest.digest.removeprefix("sha256:")[:_TAG_LETTERS]
        return [f"{self.name}:latest", f"{self.name}:{letters}"]

    def plain(self) -> Image:
        """The same image over plain tars: with this config, but with a manifest that is never pushed."""
        layers = [{**layer, "digest": layer["diff_id"], "size": layer["tar_size"]} for layer in self.layers]
        manifest = json.loads(self.manifest.content)
        manifest["layers"] = [
            {"mediaType": _LAYER, "digest": layer["digest"], "size": layer["size"]} for layer in layers
        ]
        return replace(self, layers=layers, manifest=Blob(_json(manifest)))

    def index(self) -> bytes:
        """The index.json of an OCI layout that holds this image."""
        described = self.manifest.described(MANIFEST)
        described["annotations"] = {
            "org.opencontainers.image.ref.name": f"{self.name}:latest",  # what podman names it after loading
            "io.containerd.image.name": f"docker.io/library/{self.name}:latest",
        }
        return _json({"schemaVersion": 2, "manifests": [described]})

    def docker_manifest(self) -> bytes:
        """The manifest.json of `docker save`, over the blobs of the OCI layout."""
        entry = {
            "Config": blob_path(self.config.digest),
            "RepoTags": self.names,
            "Layers": [blob_path(layer["digest"]) for layer in self.layers],
        }
        return _json([entry])


_TAG_LETTERS = 12
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


def blob_path(digest: str) -> str:
    """Where an OCI layout keeps a blob."""
    return f"blobs/{digest.replace(':', '/')}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    Image.of(spec)
    program = Path(sys.argv[2])
    program.write_text(_PROGRAM.format(python=spec["python"], library=sys.argv[3:], spec=spec))
    program.chmod(0o755)


if __name__ == "__main__":
    main()
