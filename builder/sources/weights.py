"""Whether a checkpoint's weights are whole: the files that its index lists, and the headers of safetensors.

Standard library only.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builder.model_json import read_object, refuse_lfs_pointer
from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

INDEX = ".index.json"
_MAX_LISTED = 2000  # the largest models have some hundreds; each name is compared with all of a repository's
WEIGHTS = (".safetensors", ".bin")
_MAX_HEADER = 100_000_000  # as the library safetensors has it


def check_weights(folder: Path, names: Iterable[str]) -> None:
    """Raise CheckpointInvalid unless the files of weights among `names`, in `folder`, are whole."""
    for name in names:
        if name.endswith(WEIGHTS):
            check_file(folder / name)


def indexed(folder: Path, names: Iterable[str], there: Collection[str]) -> list[str]:
    """The files that the indexes among `names`, in `folder`, list.

    Raises CheckpointInvalid, also when one is not among `there`.
    """
    found = {part: name for name in names if name.endswith(INDEX) for part in listed(folder / name)}
    for part in sorted({*found} - {*there}):
        raise CheckpointInvalid(reason=f"it has no {part}, which {found[part]} lists")
    return [*found]


def listed(index: Path) -> list[str]:
    """The files of weights that `index` lists. Raises CheckpointInvalid."""
    weight_map = read_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointInvalid(reason=f"{index.name} has no weight_map")
    names = sorted({str(name) for name in weight_map.values()})
    if len(names) > _MAX_LISTED:
        raise CheckpointInvalid(reason=f"{index.name} lists more than {_MAX_LISTED} files")
    kind = Path(index.name.removesuffix(INDEX)).suffix
    for name in names:
        if "/" in name or name.startswith("."):
            raise CheckpointInvalid(reason=f"{index.name} lists the file {name!r}, which is not beside it")
        if not name.endswith(kind):
            raise CheckpointInvalid(reason=f"{index.name} lists {name}, but such files are named *{kind}")
    return names


def check_file(path: Path) -> None:
    """Raise CheckpointInvalid for a Git LFS pointer, and for safetensors whose size is not what they say."""
    try:
        if not path.is_file():
            raise CheckpointInvalid(reason=f"it has no {path.name}")
        refuse_lfs_pointer(path)
        if path.suffix != ".safetensors":
            return
        with path.open("rb") as file:
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
