"""What is still being written: beside its destination, and removed some time after its writer was killed."""

from __future__ import annotations

import secrets
import shutil
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ABANDONED_SECONDS = 600  # no download waits that long for more data


def partial_of(destination: Path) -> Path:
    """A new name beside `destination`."""
    return destination.with_name(f".{destination.name}.{secrets.token_hex(4)}.partial")


def sweep(parent: Path, names: str = "*") -> None:
    """Remove what killed processes have left in `parent`, of destinations whose name matches `names`."""
    for partial in parent.glob(f".{names}.{'[0-9a-f]' * 8}.partial"):
        try:
            newest = max(path.lstat().st_mtime for path in (partial, *partial.rglob("*")))
        except FileNotFoundError:  # its owner has finished in the meantime
            continue
        if newest < time.time() - _ABANDONED_SECONDS:
            if partial.is_dir():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)
