"""What is still being written: beside its destination, and removed some time after its writer was killed."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What is written at once is a MiB, for which the slowest download (shared/http/limits.py) takes 1,050,
# besides its attempts that fail.
_ABANDONED_SECONDS = 3600
_made: list[Path] = []


def partial_of(destination: Path) -> Path:
    """A new name beside `destination`."""
    partial = destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.partial")
    _made.append(partial)
    return partial


@contextmanager
def appearing_file(destination: Path) -> Iterator[BinaryIO]:
    """A file that becomes `destination` when the block succeeds, and is removed when it fails."""
    partial = partial_of(destination)
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)


def remove_partials() -> None:
    """Remove what this process has not finished; for a process that is about to end, at whatever moment."""
    for partial in _made:
        _remove(partial)


def sweep(parent: Path, names: str = "*") -> None:
    """Remove what killed processes have left in `parent`, of destinations whose name matches `names`."""
    for partial in parent.glob(f".{names}.{'[0-9a-f]' * 8}.partial"):
        with suppress(OSError):  # its owner has finished in the meantime, or is somebody else
            newest = max(path.lstat().st_mtime for path in (partial, *partial.rglob("*")))
            if newest < time.time() - _ABANDONED_SECONDS:
                _remove(partial)


def _remove(partial: Path) -> None:
    if partial.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
    else:
        with suppress(OSError):
            partial.unlink()
