"""The frames between engine bridge and engine process; docs/architecture/4-frames.md holds the format.

Standard library only. Little-endian machines only, like the bridge.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from .engine import Declaration, Statistics
from .framing import FrameReader, framed
from .outputs import decode_outputs, encode_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from socket import socket

    from .engine import Output
    from .outputs import TensorsOutput, TextOutput
    from .tensors import RawTensor

PROTOCOL_VERSION = 4

# Triton's datatypes by the value of TRITONSERVER_DataType.
DATATYPES = (
    "INVALID",
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BYTES",
    "BF16",
)

_ID = struct.Struct("<Q")
_VERSION = struct.Struct("<I")
_REQUEST_HEAD = struct.Struct("<QBH")
_TENSOR_COUNT = struct.Struct("<H")
_SHAPES = tuple(struct.Struct(f"<{rank}qI") for rank in range(4))  # with the size of the data
_STATISTICS = struct.Struct(f"<{len(fields(Statistics))}I")
_READ_BYTES = 1 << 18


class FrameType(IntEnum):
    """The byte after a frame's length."""

    REQUEST = 1
    CANCEL = 2
    SHUTDOWN = 3
    READY = 64
    START_FAILED = 65
    STEP = 66
    STATISTICS = 67


class Interface(IntEnum):
    """The inputs and outputs of the model that a request is for."""

    TOKENS = 0
    TEXT = 1
    VLLM = 2  # those of Triton's own vLLM backend


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input as Triton holds it: its name, its datatype in Triton's words, its shape, its raw bytes."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """An inference request, just as it came to Triton."""

    request_id: int
    triton_id: str
    tensors: tuple[Tensor, ...]
    interface: Interface = Interface.TOKENS


@dataclass(frozen=True, slots=True)
class CancelFrame:
    """Nobody waits for this request any more."""

    request_id: int


@dataclass(frozen=True, slots=True)
class ShutdownFrame:
    """End now."""


@dataclass(frozen=True, slots=True)
class ReadyFrame:
    """The engine is loaded."""

    declaration: Declaration
    protocol_version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class StartFailedFrame:
    """The engine cannot be loaded; the text is a coded error."""

    text: str


@dataclass(frozen=True, slots=True)
class StepFrame:
    """The outputs of one engine step."""

    outputs: Sequence[Output | TextOutput | TensorsOutput]


@dataclass(frozen=True, slots=True)
class StatisticsFrame:
    """What the engine is doing."""

    statistics: Statistics


Frame = (
    RequestFrame | CancelFrame | ShutdownFrame | ReadyFrame | StartFailedFrame | StepFrame | StatisticsFrame
)


def encode(frame: Frame) -> bytes:
    """The frame's bytes, with its length before it."""
    match frame:
        case RequestFrame():
            return framed(FrameType.REQUEST, _encode_request(frame))
        case CancelFrame(request_id):
            return framed(FrameType.CANCEL, _ID.pack(request_id))
        case ShutdownFrame():
            return framed(FrameType.SHUTDOWN, b"")
        case ReadyFrame(declaration, version):
            return framed(FrameType.READY, _VERSION.pack(version) + declaration.to_json().encode())
        case StartFailedFrame(text):
            return framed(FrameType.START_FAILED, text.encode())
        case StepFrame(outputs):
            return encode_step(outputs)
        case StatisticsFrame(statistics):
            return framed(FrameType.STATISTICS, _STATISTICS.pack(*astuple(statistics)))


def encode_step(outputs: Sequence[Output | TextOutput | TensorsOutput]) -> bytes:
    """The bytes of a STEP frame."""
    return framed(FrameType.STEP, encode_outputs(outputs))


def decode(kind: int, body: bytes) -> Frame:
    """The frame of this type and body. Raises ValueError for bytes that are not one."""
    try:
        match kind:
            case FrameType.REQUEST:
                return _decode_request(body)
            case FrameType.CANCEL:
                return CancelFrame(*_ID.unpack(body))
            case FrameType.SHUTDOWN:
                return ShutdownFrame()
            case FrameType.READY:
                (version,) = _VERSION.unpack_from(body)
                return ReadyFrame(Declaration.from_json(body[_VERSION.size :].decode()), version)
            case FrameType.START_FAILED:
                return StartFailedFrame(body.decode())
            case FrameType.STEP:
                return StepFrame(decode_outputs(body))
            case FrameType.STATISTICS:
                return StatisticsFrame(Statistics(*_STATISTICS.unpack(body)))
    except (struct.error, IndexError) as error:
        raise ValueError(f"a frame of type {kind} ends too early or too late") from error
    raise ValueError(f"there is no frame of type {kind}")


def receive(connection: socket) -> Iterator[Frame]:
    """Yield the frames that arrive, until the other side closes. Raises ValueError as `decode` does."""
    reader = FrameReader()
    # One that ends before it has read all that we sent is said to reset the connection.
    with suppress(ConnectionResetError):
        while data := connection.recv(_READ_BYTES):
            for kind, body in reader.frames(data):
                yield decode(kind, body)


def _encode_request(frame: RequestFrame) -> bytes:
    triton_id = frame.triton_id.encode()
    parts = [
        struct.pack("<QBH", frame.request_id, frame.interface, len(triton_id)),
        triton_id,
        encode_tensors(frame.tensors),
    ]
    return b"".join(parts)


def encode_tensors(tensors: Sequence[Tensor | RawTensor]) -> bytes:
    """Tensors as both kinds of REQUEST frames hold them."""
    parts = [_TENSOR_COUNT.pack(len(tensors))]
    for tensor in tensors:
        parts += (_tensor_head(tensor.name, tensor.datatype, tensor.shape, len(tensor.data)), tensor.data)
    return b"".join(parts)


@lru_cache
def _tensor_head(name: str, datatype: str, shape: tuple[int, ...], size: int) -> bytes:
    encoded = name.encode()
    head = struct.pack(f"<BB{len(shape)}qI", DATATYPES.index(datatype), len(shape), *shape, size)
    return bytes([len(encoded)]) + encoded + head


def _decode_request(data: bytes) -> RequestFrame:
    request_id, interface, length = _REQUEST_HEAD.unpack_from(data)
    at = _REQUEST_HEAD.size
    triton_id = data[at : (at := at + length)].decode(errors="replace")
    (tensor_count,) = _TENSOR_COUNT.unpack_from(data, at)
    at += _TENSOR_COUNT.size
    tensors = []
    for _ in range(tensor_count):
        length = data[at]
        name = data[at + 1 : (at := at + 1 + length)].decode(errors="replace")
        datatype, rank = data[at], data[at + 1]
        layout = struct.Struct(f"<{rank}qI") if rank >= len(_SHAPES) else _SHAPES[rank]
        *shape, size = layout.unpack_from(data, at + 2)
        at += 2 + layout.size
        contents = data[at : (at := at + size)]
        tensors.append(Tensor(name, DATATYPES[datatype], tuple(shape), contents))
    if at != len(data):  # nor has anything been cut: a slice that is too short leaves `at` beyond the end
        raise IndexError
    return RequestFrame(request_id, triton_id, tuple(tensors), Interface(interface))
