"""The JSON files of a model: from anybody, so of any size and shape. Standard library only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 256 << 20  # tokenizer.json of a large vocabulary has some 30 MB

_LFS_POINTER = b"version https://git-lfs"


def is_lfs_pointer(path: Path) -> bool:
    """Whether the file stands for another one that Git LFS would fetch. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def refuse_lfs_pointer(path: Path) -> None:
    """Raise CheckpointInvalid for a Git LFS pointer. Raises OSError."""
    if is_lfs_pointer(path):
        reason = f"{path.name} is a Git LFS pointer, not the file itself; `git lfs pull` fetches that"
        raise CheckpointInvalid(reason=reason)


def check_size(path: Path) -> None:
    """Raise CheckpointInvalid for more than can be meant: what reads it keeps all of it in memory. Raises
    OSError.
    """
    if path.stat().st_size > MAX_BYTES:
        raise CheckpointInvalid(reason=f"{path.name} has more than {MAX_BYTES} bytes")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in the file `path`. Raises CheckpointInvalid when there is none."""
    try:
        if not path.is_file():  # reading a pipe would wait
            raise CheckpointInvalid(reason=f"it has no {path.name}")
        check_size(path)
        refuse_lfs_pointer(path)
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointInvalid(reason=f"{path.name} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise CheckpointInvalid(reason=f"{path.name} is not JSON, or nested too deeply") from None
    if not isinstance(content, dict):
        raise CheckpointInvalid(reason=f"{path.name} is not a JSON object")
    return content
