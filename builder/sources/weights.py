"""Whether a checkpoint's weights are whole: the files that its index lists, and the headers of safetensors.

Standard library only.
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from builder.model_json import read_object
from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_INDEX = ".index.json"
_LFS_POINTER = b"version https://git-lfs"
_MAX_HEADER = 100_000_000  # as the library safetensors has it


def check_weights(folder: Path, patterns: Sequence[str]) -> None:
    """Raise CheckpointInvalid unless the files in `folder` that match `patterns` are whole, and the indexes
    among them list only files among them.
    """
    names = sorted(path.name for path in folder.iterdir() if _matches(path.name, patterns))
    for name in names:
        if not name.endswith(_INDEX):
            check_file(folder / name)
            continue
        for part in listed(folder / name):
            if not _matches(part, patterns):
                named = [pattern for pattern in patterns if not pattern.endswith(_INDEX)][-1]
                reason = f"{name} lists {part}, but such files are named {named}"
                raise CheckpointInvalid(reason=reason)
            if part not in names:
                raise CheckpointInvalid(reason=f"it has no {part}")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def listed(index: Path) -> list[str]:
    """The files of weights that `index` lists. Raises CheckpointInvalid."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointInvalid(reason=f"{index.name} has no weight_map")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if "/" in name or name.startswith("."):
            raise CheckpointInvalid(reason=f"{index.name} lists the file {name!r}, which is not beside it")
    return names


def check_file(path: Path) -> None:
    """Raise CheckpointInvalid for a Git LFS pointer, and for safetensors whose size is not what they say."""
    try:
        if not path.is_file():
            raise CheckpointInvalid(reason=f"it has no {path.name}")
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise CheckpointInvalid(
                    reason=f"{path.name} is a Git LFS pointer, not the weights themselves"
                )
            if path.suffix != ".safetensors":
                return
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= _MAX_HEADER else b""
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise CheckpointInvalid(reason=f"{path.name} cannot be read ({error.strerror})") from None
    told = _end(header)
    if told is None:
        problem = "its header cannot be read"
    elif 8 + length + told != size:
        problem = f"it has {size} bytes, but its header accounts for {8 + length + told}"
    else:
        return
    raise CheckpointInvalid(reason=f"{path.name} is damaged or incomplete ({problem})")


def _end(header: bytes) -> int | None:
    """Where the last tensor ends, from the end of `header`; None if that is not one."""
    try:
        tensors: dict[str, Any] = json.loads(header)
        return max(
            (int(tensors[name]["data_offsets"][1]) for name in tensors.keys() - {"__metadata__"}), default=0
        )
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError):
        return None
