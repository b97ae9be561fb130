"""Reads a Hugging Face checkpoint: config.json and the tensors of its safetensors files.

Tensors are looked up by name, checked against the shape that config.json implies, and read one at a time,
as float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 -- teaches numpy the type bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open

from builder.model_json import read_object
from builder.sources.weights import check_file, listed
from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_FLOAT_TYPES = ("F32", "F16", "BF16")


class Checkpoint:
    """An open checkpoint directory.

    Raises CheckpointInvalid for files that are missing, damaged, or Git LFS pointers.
    """

    def __init__(self, directory: Path) -> None:
        self.config = read_object(directory / "config.json")
        self._tensors: dict[str, Any] = {}
        self._required: set[str] = set()
        for path in _weight_files(directory):
            weights = _open_weights(path)
            self._tensors |= dict.fromkeys(weights.keys(), weights)

    def require(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise CheckpointInvalid unless there is a tensor `name` of this shape, in a float type."""
        self._required.add(name)
        if name not in self._tensors:
            raise CheckpointInvalid(reason=f"it has no tensor {name}")
        view = self._tensors[name].get_slice(name)
        found = tuple(view.get_shape())
        if found != shape:
            raise CheckpointInvalid(
                reason=f"the tensor {name} has the shape {list(found)}, but config.json implies {list(shape)}"
            )
        if (dtype := view.get_dtype()) not in _FLOAT_TYPES:
            raise CheckpointInvalid(
                reason=f"the tensor {name} has the type {dtype}, not one of {', '.join(_FLOAT_TYPES)}"
            )

    def never_required(self) -> list[str]:
        """The names of the tensors that were never required."""
        return sorted(self._tensors.keys() - self._required)

    def read(self, names: Iterable[str]) -> NDArray[np.float32]:
        """The tensors `names`, concatenated along axis 0, as float32."""
        parts = [self._tensors[name].get_tensor(name).astype(np.float32) for name in names]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _weight_files(directory: Path) -> list[Path]:
    index = directory / INDEX
    names = listed(index) if index.exists() else [WEIGHTS]
    return [directory / name for name in names]


def _open_weights(path: Path) -> Any:
    check_file(path)
    try:
        return safe_open(path, framework="numpy")
    except OSError as error:
        raise CheckpointInvalid(reason=f"{path.name} cannot be read ({error.strerror})") from None
    except SafetensorError as error:
        raise CheckpointInvalid(reason=f"{path.name} is damaged or incomplete ({error})") from None
