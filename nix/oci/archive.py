"""Deliver an image: as a stream that docker and podman load, or as an OCI layout in a directory.

The stream is a tar that is both: an OCI layout, and docker's own format over the same blobs.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from . import layer
from .image import LAYOUT, Image, blob_path
from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable


def small_files(image: Image) -> dict[str, bytes]:
    """Every file of the OCI layout but the layers."""
    return {
        "oci-layout": LAYOUT,
        "index.json": image.index(),
        blob_path(image.config.digest): image.config.content,
        blob_path(image.manifest.digest): image.manifest.content,
    }


def stream(image: Image, output: IO[bytes], tell: Callable[[str], None]) -> None:
    """Write the archive to `output`; layers are made on the way. Raises Problem and OSError."""

    def entry(name: str, size: int) -> None:
        info = tarfile.TarInfo(name)
        info.size = size
        output.write(info.tobuf(tarfile.GNU_FORMAT))

    def pad(size: int) -> None:
        output.write(bytes(-size % tarfile.BLOCKSIZE))

    for name, content in {**small_files(image), "manifest.json": image.docker_manifest()}.items():
        entry(name, len(content))
        output.write(content)
        pad(len(content))
    for record in image.layers:
        tell(f"{record['name']}: {record['size'] / 1e6:.1f} MB")
        entry(blob_path(record["digest"]), record["size"])
        layer.make_again(record, _writer(output))
        pad(record["size"])
    output.write(bytes(2 * tarfile.BLOCKSIZE))
    output.flush()


def write_layout(image: Image, directory: Path, tell: Callable[[str], None]) -> None:
    """Write an OCI layout, which appears complete or not at all. Raises Problem and OSError."""
    try:
        if os.path.lexists(directory):
            raise Problem(f"{directory} exists already: choose a new directory.")
        scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.resolve().parent))
    except OSError as error:
        raise Problem(f"{directory} cannot be made: {error.strerror}.") from None
    try:
        write_small_files(image, scratch)
        for record in image.layers:
            tell(f"{record['name']}: {record['size'] / 1e6:.1f} MB")
            write_blob(record, scratch)
        scratch.chmod(0o755)
        scratch.rename(directory)
    except BaseException:
        shutil.rmtree(scratch)
        raise


def write_small_files(image: Image, directory: Path) -> None:
    (directory / "blobs/sha256").mkdir(parents=True)
    for name, content in small_files(image).items():
        (directory / name).write_bytes(content)


def write_blob(record: dict[str, object], directory: Path) -> None:
    """Make the layer of a record; a plain tar if the record's digest is that of one (Image.plain)."""
    with (directory / blob_path(str(record["digest"]))).open("wb") as blob:
        layer.make_again(record, _writer(blob), plain=record["digest"] == record["diff_id"])


def _writer(output: IO[bytes]) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        output.write(data)

    return write
