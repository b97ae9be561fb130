"""Safetensors: those of the hub, one tensor at a time; those of a rank, written as they come."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
from safetensors import safe_open

from .layout import Part, stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TYPES = {
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F32": np.dtype(np.float32),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
}
_ROWS = 1 << 22  # values at a time: large tensors are never whole in memory


class HubWeights:
    """The tensors of a checkpoint of the hub."""

    def __init__(self, directory: Path) -> None:
        index = directory / "model.safetensors.index.json"
        if index.is_file():
            files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        else:
            files = ["model.safetensors"]
        self._tensors = {}
        for file in files:
            if not (directory / file).is_file():
                raise OSError(f"{directory} does not appear to have a file named {file}.")
            opened = safe_open(directory / file, framework="numpy")
            names = opened.keys()
            # GPT-2 is on the hub with and without this prefix.
            self._tensors |= {name.removeprefix("transformer."): (opened, name) for name in names}

    def slice(self, name: str, shape: tuple[int, ...]):
        """A tensor that was not read yet."""
        if name not in self._tensors:
            raise KeyError(name)
        file, full_name = self._tensors[name]
        found = file.get_slice(full_name)
        if tuple(found.get_shape()) != shape:
            updated, original = tuple(found.get_shape()), shape
            raise AssertionError(
                f"The value updated is not the same shape as the original. Updated: {updated}, original: {original}"
            )
        return found


def share(weights: HubWeights, part: Part, tp: int, tp_rank: int) -> Iterator[np.ndarray]:
    """The rows of one rank's share of `part`, some at a time."""
    for source, shape in zip(part.sources, part.shapes, strict=True):
        view = weights.slice(source, shape)
        rows, *columns = part.cut(shape, tp)
        if part.transposed:
            yield np.ascontiguousarray(view[:].T)
            continue
        first = tp_rank * rows if part.axis == 0 else 0
        left = slice(tp_rank * columns[0], (tp_rank + 1) * columns[0]) if part.axis == 1 else slice(None)
        step = max(1, _ROWS // prod(columns))
        for row in range(first, first + rows, step):
            upto = min(row + step, first + rows)
            yield view[row:upto, left] if columns else view[row:upto]


def write_rank(path: Path, weights: HubWeights, parts: list[Part], config: dict, tp_rank: int) -> None:
    """Write rankN.safetensors: the header first, then each tensor as it is read."""
    tp = config["mapping"]["tp_size"]
    header, end = {}, 0
    for part in parts:
        for name, (dtype, shape) in stored(part, config).items():
            start, end = end, end + prod(shape) * TYPES[dtype].itemsize
            header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for part in parts:
            targets = stored(part, config)
            scales: list[np.ndarray] = []
            (dtype, _), *rest = targets.values()
            for rows in share(weights, part, tp, tp_rank):
                file.write(memoryview(_quantize(rows, dtype, targets[part.name][1], scales)).cast("B"))
            for kind, shape in rest:
                values = (
                    np.concatenate(scales) if scales and shape == (targets[part.name][1][0],) else np.ones(1)
                )
                file.write(np.broadcast_to(values, shape).astype(TYPES[kind]).tobytes())


def _quantize(rows: np.ndarray, dtype: str, stored_shape: tuple, scales: list[np.ndarray]) -> np.ndarray:
    """`rows` in the type of the checkpoint; the scale of each row is added to `scales`."""
    if dtype != "I8":
        return np.ascontiguousarray(rows.astype(TYPES[dtype], copy=False)).view(np.uint8)
    values = rows.astype(np.float32)
    half = values.shape[1] == 2 * stored_shape[1]
    scale = np.maximum(np.abs(values).max(axis=1), 1e-8) / (7 if half else 127)
    scales.append(scale)
    whole = np.rint(values / scale[:, None]).astype(np.int8)
    return (
        (whole[:, ::2] & 15 | whole[:, 1::2] << 4).astype(np.int8).view(np.uint8)
        if half
        else whole.view(np.uint8)
    )
