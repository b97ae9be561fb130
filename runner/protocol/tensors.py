"""Tensors as Triton's protocols carry them: tables of them, and conversion of their bytes to values and back.

Standard library only: engine processes import it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.protocol.engine import SamplingParameters
from shared.errors import InvalidArgument, MalformedRequest, TensorNotSupported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from runner.protocol.frames import RequestFrame, Tensor

_FORMATS = {
    "BOOL": "?",
    "UINT8": "B",
    "INT32": "i",
    "INT64": "q",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
_ONE_NUMBER = {datatype: struct.Struct(f"<{form}") for datatype, form in _FORMATS.items()}

ANY = (-1,)
ONE = (1,)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor: `dims` are without the batch dimension, -1 is any length."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = True


class Range(NamedTuple):
    """The values that a sampling parameter may have, both ends included, and those that leave it unset."""

    low: float
    high: float
    unset_up_to: float = -math.inf

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int | float) and self.low <= number <= self.high and not math.isinf(number)

    def __str__(self) -> str:
        """What a number must be."""
        low = "above 0" if self.low == math.ulp(0) else f"at least {self.low:g}"
        parts = {low: self.low, f"at most {self.high:g}": self.high}
        said = [part for part, end in parts.items() if not math.isinf(end)]
        return " and ".join(said if len(said) == len(parts) else [*said, "finite"])


class RawTensor(NamedTuple):
    """One input as Triton's protocols carry it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class InputTable:
    """The inputs of one model.

    `sampling`: input -> the field of SamplingParameters that it sets, and the values it may have.
    `unsupported`: inputs that ask for something which is not supported -> the values that ask for nothing. An
    empty tensor and an empty text never ask for anything.
    """

    supported: tuple[TensorSpec, ...]
    sampling: Mapping[TensorSpec, tuple[str, Range]]
    unsupported: Mapping[TensorSpec, tuple[float, ...]]
    without_effect: tuple[TensorSpec, ...]
    batched: bool = True
    """Whether there is a batch dimension of 1 before the others."""

    @cached_property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """All of them."""
        return (*self.supported, *self.sampling, *self.without_effect, *self.unsupported)

    @cached_property
    def _by_name(self) -> dict[str, TensorSpec]:
        return {spec.name: spec for spec in self.inputs}

    @cached_property
    def _neutral(self) -> dict[str, tuple[float, ...]]:
        return {spec.name: values for spec, values in self.unsupported.items()}

    def read(self, frame: RequestFrame, skip: str | None = None) -> dict[str, tuple[Any, ...]]:
        """The values of a request's inputs by name, numbers or texts; without names that begin with `skip`.

        Raises MalformedRequest for inputs that violate the table, TensorNotSupported for ones that ask for
        something unsupported.
        """
        given = {}
        for tensor in frame.tensors:
            if skip is not None and tensor.name.startswith(skip):
                continue
            if tensor.name not in self._by_name:
                raise MalformedRequest(reason=f"there is no input {tensor.name!r}")
            given[tensor.name] = values = tensor_values(
                tensor, self._by_name[tensor.name], batched=self.batched
            )
            neutral = self._neutral.get(tensor.name)
            if neutral is not None and any(value != "" and value not in neutral for value in values):
                raise TensorNotSupported(tensor=tensor.name)
        for spec in self.supported:
            if not spec.optional and not given.get(spec.name):
                raise MalformedRequest(reason=f"{spec.name} is missing or empty")
        return given

    def read_sampling(self, given: Mapping[str, tuple[Any, ...]]) -> SamplingParameters:
        """The sampling parameters among the values from `read`. Raises MalformedRequest."""
        values: dict[str, Any] = {}
        for spec, (field, allowed) in self.sampling.items():
            for number in given.get(spec.name, ()):
                if number not in allowed:
                    raise MalformedRequest(reason=f"{spec.name} is {number:g}, but must be {allowed}")
                if number > allowed.unset_up_to:
                    values[field] = number
        return SamplingParameters(**values)


def tensor_values(tensor: Tensor, spec: TensorSpec, *, batched: bool = False) -> tuple[Any, ...]:
    """The elements of an input that has the datatype and the dims of its spec. Raises MalformedRequest
    otherwise.
    """
    if tensor.datatype != spec.datatype:
        raise MalformedRequest(reason=f"{tensor.name} is {tensor.datatype}, not {spec.datatype}")
    batch, *dims = (tensor.shape or (0,)) if batched else (1, *tensor.shape)
    fits = len(dims) == len(spec.dims) and all(
        got >= 0 and want in (-1, got) for want, got in zip(spec.dims, dims, strict=True)
    )
    if batch != 1 or not fits:
        wanted = [1, *spec.dims] if batched else [*spec.dims]
        reason = f"{tensor.name} has the shape {list(tensor.shape)}, not {wanted}"
        raise MalformedRequest(reason=reason)
    count = math.prod(dims)
    if spec.datatype == "BYTES":
        return _texts(tensor, count)
    element = _FORMATS[spec.datatype]
    size = count * struct.calcsize(f"<{element}")
    if size != len(tensor.data):
        raise MalformedRequest(reason=f"{tensor.name} has {len(tensor.data)} bytes, not {size}")
    return struct.unpack(f"<{count}{element}", tensor.data)


def _texts(tensor: Tensor, count: int) -> tuple[str, ...]:
    """Strings: each is its length in bytes (u32), then UTF-8."""
    texts = []
    at = 0
    try:
        while at < len(tensor.data):
            (length,) = struct.unpack_from("<I", tensor.data, at)
            at += 4 + length
            texts.append(tensor.data[at - length : at].decode())
    except (struct.error, UnicodeDecodeError):
        raise MalformedRequest(reason=f"{tensor.name} holds a string that cannot be read") from None
    if at != len(tensor.data) or len(texts) != count:
        raise MalformedRequest(reason=f"{tensor.name} does not hold the {count} strings that its shape says")
    return tuple(texts)


def raw_tensor(spec: TensorSpec, numbers: Sequence[float]) -> RawTensor:
    """The input that holds these numbers, with the leading batch dimension of 1.

    Raises InvalidArgument for one that its datatype cannot hold.
    """
    if spec.dims == (2, -1):
        shape: tuple[int, ...] = (1, 2, len(numbers) // 2)
    else:
        shape = (1, len(numbers))
    try:
        if len(numbers) == 1:
            data = _ONE_NUMBER[spec.datatype].pack(numbers[0])
        else:
            data = struct.pack(f"<{len(numbers)}{_FORMATS[spec.datatype]}", *numbers)
    except (struct.error, OverflowError):
        reason = f"it does not fit into the {spec.datatype} that engines use"
        raise InvalidArgument(argument=spec.name, value=max(numbers, key=abs), reason=reason) from None
    return RawTensor(spec.name, spec.datatype, shape, data)


def text_tensor(spec: TensorSpec, text: str) -> RawTensor:
    """The input that holds one text, with the leading batch dimension of 1."""
    data = text.encode()
    return RawTensor(spec.name, spec.datatype, (1, 1), struct.pack("<I", len(data)) + data)


def flatten_words(words: Iterable[Sequence[int]]) -> list[int]:
    """TensorRT-LLM's word lists: a row of all ids, and one of where each word ends (padded with -1)."""
    words = [word for word in words if word]
    ids = [token for word in words for token in word]
    ends = list(accumulate(len(word) for word in words))
    return ids + ends + [-1] * (len(ids) - len(ends))


def split_words(name: str, rows: Sequence[int]) -> list[list[int]]:
    """The inverse of `flatten_words` for the values of the input `name`. Raises MalformedRequest."""
    width = len(rows) // 2
    ids, ends = rows[:width], [end for end in rows[width:] if end > 0]
    if any(start >= end for start, end in pairwise([0, *ends])) or (ends and ends[-1] > width):
        raise MalformedRequest(reason=f"the second row of {name} does not say where each word ends")
    words = [list(ids[start:end]) for start, end in pairwise([0, *ends])]
    if any(token < 0 for word in words for token in word):
        raise MalformedRequest(reason=f"{name} has a negative id")
    return words
