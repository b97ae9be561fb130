"""Tensors in the form that CTranslate2's model writer needs: shape and type first, bytes when it writes them.

The writer needs nothing else of a variable, so only one tensor is in memory at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from .checkpoint import Checkpoint

# Without VNNI, an x86 CPU adds two products of an 8-bit activation (0 to 255) and a weight in 16 bits, and
# cuts off what does not fit. With weights of up to 64 all fits: an engine answers the same on every CPU.
_LARGEST_INT8 = 64


@dataclass(frozen=True)
class LazyVariable:
    """One variable of model.bin."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[], NDArray[Any]]
    written: Callable[[int], None]  # gets the number of bytes

    def num_bytes(self) -> int:
        """Size in model.bin."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def to_bytes(self) -> bytes:
        """The content, in row-major order."""
        content = self.read().tobytes()
        self.written(len(content))
        return content


class Variables:
    """Makes the variables of one conversion. `progress` gets the bytes written and their total."""

    def __init__(self, checkpoint: Checkpoint, *, int8: bool, progress: Callable[[int, int], None]) -> None:
        self._checkpoint = checkpoint
        self._int8 = int8
        self._progress = progress
        self._written = self._total = 0
        # A weight and its scales are written one after the other: one slot serves both from a single read.
        self._quantized = lru_cache(maxsize=1)(self._quantize)

    def linear(self, spec: Any, rows: dict[str, int], columns: int, *, bias: bool = False) -> None:
        """Make `spec` the modules named in `rows` (name -> output features), concatenated.

        Raises CheckpointInvalid for a tensor that is missing or has another shape; so does `norm`.
        """
        weights = tuple(f"{module}.weight" for module in rows)
        for name, size in zip(weights, rows.values(), strict=True):
            self._checkpoint.require(name, (size, columns))
        shape = (sum(rows.values()), columns)
        if self._int8:
            spec.weight = self._lazy(shape, "int8", lambda: self._quantized(weights)[0])
            spec.weight_scale = self._lazy(shape[:1], "float32", lambda: self._quantized(weights)[1])
        else:
            spec.weight = self._lazy(shape, "float32", lambda: self._checkpoint.read(weights))
        if bias:
            biases = {f"{module}.bias": size for module, size in rows.items()}
            spec.bias = self._vector(biases)

    def norm(self, spec: Any, module: str, size: int) -> None:
        """Make `spec` the RMS norm `module`."""
        spec.gamma = self._vector({f"{module}.weight": size})

    def _vector(self, sizes: dict[str, int]) -> LazyVariable:
        for name, size in sizes.items():
            self._checkpoint.require(name, (size,))
        return self._lazy((sum(sizes.values()),), "float32", lambda: self._checkpoint.read(sizes))

    def _lazy(self, shape: tuple[int, ...], dtype: str, read: Callable[[], NDArray[Any]]) -> LazyVariable:
        variable = LazyVariable(shape, dtype, read, self._count)
        self._total += variable.num_bytes()
        return variable

    def _count(self, size: int) -> None:
        self._written += size
        self._progress(self._written, self._total)

    def _quantize(self, names: tuple[str, ...]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """Symmetric, per row: CTranslate2 computes weight / scale."""
        matrix = self._checkpoint.read(names)
        largest = np.abs(matrix).max(axis=1)
        largest[largest == 0] = _LARGEST_INT8
        scale = np.float32(_LARGEST_INT8) / largest
        matrix *= scale[:, None]
        return np.rint(matrix, out=matrix).astype(np.int8), scale
