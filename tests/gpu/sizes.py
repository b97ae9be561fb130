"""Sizes of files and folders, and compressed as the images' layers are.

Needs the wheels of requirements/tools.txt, for the compressor of the layers.
"""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from nix.oci.tar import write_tar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@cache
def compressed(path: Path) -> int:
    """As in a layer."""
    with compressing() as (gzip, size), path.open("rb") as file:
        while part := file.read(1 << 20):
            gzip.write(part)
    return size()


def compressed_tree(root: Path) -> dict[str, int]:
    """A tar of a folder as layers are made: gzip as in the images, and zstd -3."""
    with (
        subprocess.Popen(["zstd", "-3", "-q", "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as zstd,
        ThreadPoolExecutor() as pool,
    ):
        counted = pool.submit(lambda: sum(len(part) for part in iter(lambda: zstd.stdout.read(1 << 20), b"")))
        with compressing() as (gzip, size):

            def add(data: bytes) -> None:
                gzip.write(data)
                zstd.stdin.write(data)

            write_tar(root, {}, add)
        zstd.stdin.close()
        return {"gzip": size(), "zstd": counted.result()}


@contextmanager
def compressing() -> Iterator[tuple[Any, Callable[[], int]]]:
    """The compressor of layers, and how many bytes came out of it."""
    from nix.oci.compress import GzipWriter

    written: list[int] = []
    gzip = GzipWriter(lambda data: written.append(len(data)))
    yield gzip, lambda: sum(written)
    gzip.close()


def sizes(root: Path, *, compress: bool) -> dict[str, int]:
    """Bytes of all files, and of a layer that holds them."""
    files = (path for path in root.rglob("*") if not path.is_symlink() and path.is_file())
    found = {"files": sum(path.stat().st_size for path in files)}
    return found | compressed_tree(root) if compress and root.exists() else found
