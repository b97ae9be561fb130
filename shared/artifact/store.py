"""Files on their way into a new directory: written, hashed and synced side by side."""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from .partial import partial_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Store:
    """Writes files. Two threads do what needs no order: SHA-256, and waiting for the disk."""

    def __init__(self) -> None:
        self._hashing = ThreadPoolExecutor(1, "sha256")
        self._syncing = ThreadPoolExecutor(1, "fsync")
        self._synced: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hashing.shutdown(cancel_futures=True)
        self._syncing.shutdown(cancel_futures=True)

    def keep(self, path: Path, chunks: Iterable[bytes | memoryview]) -> str:
        """Write a new file; return its SHA-256."""
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for chunk in chunks:
                hashed = self._hashing.submit(digest.update, chunk)
                file.write(chunk)
                hashed.result()
        self._synced.append(self._syncing.submit(sync, path))
        return digest.hexdigest()

    def wait(self) -> None:
        """Return when everything is on the disk."""
        for synced in self._synced:
            synced.result()


@contextmanager
def appearing(destination: Path) -> Iterator[Path]:
    """A directory that becomes `destination` when the block succeeds, and is removed when it fails."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = partial_of(destination)
    partial.mkdir()
    try:
        yield partial
        # An empty directory would be replaced, and one with files in it is refused.
        partial.rename(destination)
        sync(destination.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sync(path: Path) -> None:
    """Return when the file, or the entries of the directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
