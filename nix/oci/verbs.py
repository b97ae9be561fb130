"""What `./result` does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .archive import stream, write_layout
from .attachments import PROVENANCE, SBOM, VEX, attach
from .image import Image
from .load import load
from .problem import Problem
from .program import running
from .push import push
from .sbom import spdx
from .vex import openvex


def main(spec: dict[str, Any]) -> None:
    """Run one verb."""
    arguments = _parser(spec["name"]).parse_args()
    with running():
        _do(arguments, Image.of(spec), spec)


def _do(arguments: argparse.Namespace, image: Image, spec: dict[str, Any]) -> None:
    """Raises Problem and OSError."""
    match arguments.verb:
        case "load":
            load(image, _tell)
        case "push":
            push(image, arguments.reference, spec["skopeo"], _tell)
            print(image.manifest.digest)
        case "attach":
            _attach(image, spec["created"], arguments.reference, arguments.provenance)
        case "layout":
            write_layout(image, arguments.directory, _tell)
        case "digest":
            print(image.manifest.digest)
        case "inspect":
            _inspect(image, as_json=arguments.json)
        case "sbom":
            print(spdx(image, spec["created"]))
        case "vex":
            print(openvex(image))
        case _:
            _stream(image)


def _parser(name: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=name, description="Without a verb: write an archive for `docker load` to standard output."
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("load", help="load into docker or podman, whichever is installed")
    verbs.add_parser("push", help="push to a registry, with the credentials of `docker login`").add_argument(
        "reference", help="host/repository:tag"
    )
    attach = verbs.add_parser("attach", help="attach SBOM and VEX document to the image in a registry")
    attach.add_argument("reference", help="where it was pushed: host/repository:tag")
    attach.add_argument("--provenance", type=Path, help="also attach how it was made (an in-toto statement)")
    verbs.add_parser("layout", help="write an OCI layout").add_argument("directory", type=Path)
    verbs.add_parser("digest", help="print the digest that a push produces")
    inspect = verbs.add_parser("inspect", help="print the layers, their sizes and what is in them")
    inspect.add_argument("--json", action="store_true", help="for programs")
    verbs.add_parser("sbom", help="print the contents as SPDX 2.3 (JSON)")
    verbs.add_parser("vex", help="print what the contents' published flaws mean here, as OpenVEX (JSON)")
    return parser


def _tell(line: str) -> None:
    if sys.stderr is not None:  # print would write to standard output instead, which may be an archive
        print(line, file=sys.stderr, flush=True)


def _stream(image: Image) -> None:
    if sys.stdout is None or sys.stdout.isatty():
        raise Problem(f"This writes {image.name} as an archive: pipe it into `docker load`, or see --help.")
    stream(image, sys.stdout.buffer, _tell)


def _attach(image: Image, created: str, reference: str, provenance: Path | None) -> None:
    documents = {SBOM: spdx(image, created).encode(), VEX: openvex(image).encode()}
    if provenance:
        try:
            documents[PROVENANCE] = provenance.read_bytes()
        except OSError as error:
            raise Problem(f"{provenance} cannot be read: {error.strerror}.") from None
    for kind, document in documents.items():
        _tell(f"{kind}: {attach(image, reference, kind, document)}")


def _inspect(image: Image, *, as_json: bool) -> None:
    if as_json:
        shown = ("name", "digest", "size", "diff_id", "unpacked", "packages", "pruned")
        layers = [{key: layer[key] for key in shown} for layer in image.layers]
        print(json.dumps({"name": image.name, "digest": image.manifest.digest, "layers": layers}, indent=2))
        return
    total = sum(layer["size"] for layer in image.layers)
    print(f"{image.name}  {image.manifest.digest}  {total / 1e6:.1f} MB compressed")
    for layer in image.layers:
        sizes = f"{layer['size'] / 1e6:9.1f} MB  {layer['unpacked'] / 1e6:9.1f} MB unpacked"
        print(f"\n{layer['name']:<28}{sizes}  {layer['digest']}")
        for package in layer["packages"]:
            print(f"    {package['name']} {package['version']}")
        _inspect_pruned(layer["pruned"])


def _inspect_pruned(rows: list[dict[str, Any]]) -> None:
    """Libraries with device code, largest first, and files left out or made links."""
    if rows:
        print("\n    Pruned: MB of device code before and after, and files that take no space any more")
    for row in sorted(rows, key=lambda row: (-row["device"][0], row["path"])):
        before, after = (size / 1e6 for size in row["device"])
        if not row["size"][1]:
            print(f"    {row['path']}: {row['reason']} ({row['size'][0] / 1e6:.1f} MB)")
        elif row["reason"]:
            print(f"    {row['path']}: left whole ({row['reason']})")
        else:
            print(f"    {before:9.1f} -> {after:9.1f}  {row['path']}")
