"""The frames of a feed: the Unix socket on which a client sends the bridge requests, and gets their outputs.

docs/architecture/4-frames.md holds the bodies. The bridge is compiled against the numbers below.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from .engine import Declaration, Statistics
from .frames import PROTOCOL_VERSION, encode_tensors
from .framing import FrameReader, framed
from .outputs import decode_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .engine import Output
    from .outputs import TextOutput
    from .tensors import RawTensor

FEED_PARAMETER = "feed"
"""The parameter by which the bridge recognises a request that it gave Triton; not for clients."""

GROUP_PARAMETER = "runner_group"
"""The parameter with the number by which requests of Triton's own clients are cancelled together."""

LARGEST_REQUEST = 1 << 26
"""Bytes that a client's frame may have after its length; a larger one ends the feed."""

_LARGEST_FRAME = 1 << 26
_OPENED = struct.Struct("<I")
_ENGINE = struct.Struct("<BI")
_STATISTICS = struct.Struct(f"<{1 + len(fields(Statistics))}I")
_ID = struct.Struct("<Q")


class FeedFrame(IntEnum):
    """The byte after a frame's length."""

    REQUEST = 1
    CANCEL = 2
    CANCEL_GROUP = 3
    OPENED = 128
    ENGINE = 129
    STEP = 130
    STATISTICS = 131


class EngineState(IntEnum):
    """What the engine process is doing."""

    STARTING = 0
    READY = 1
    RESTARTING = 2
    GIVEN_UP = 3


@dataclass(frozen=True, slots=True)
class Opened:
    """The first frame: the bridge speaks the same version."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The state of the engine process: sent immediately, and whenever it changes."""

    state: EngineState
    restarts: int
    """How often the engine process was started again since Triton started."""
    declaration: Declaration | None
    """Of the engine that is loaded now, or was last."""


@dataclass(frozen=True, slots=True)
class FeedStatistics:
    """What the engine reported last; `in_flight` counts all requests of the bridge."""

    in_flight: int
    statistics: Statistics


Message: TypeAlias = "Opened | EngineStatus | FeedStatistics | Sequence[Output | TextOutput]"


def encode_request(feed_request: int, tensors: Sequence[RawTensor]) -> bytes:
    """The frame with a request; `feed_request` is the client's id for it, which it uses once."""
    return framed(FeedFrame.REQUEST, _ID.pack(feed_request) + encode_tensors(tensors))


def encode_cancel(feed_request: int) -> bytes:
    """The frame that ends a request: its last output will say CANCELLED, unless it ends first."""
    return framed(FeedFrame.CANCEL, _ID.pack(feed_request))


def encode_cancel_group(group: int) -> bytes:
    """The frame that ends the requests with this number in GROUP_PARAMETER, those that the engine has."""
    return framed(FeedFrame.CANCEL_GROUP, _ID.pack(group))


class FeedReader:
    """Cuts what a feed sends into messages."""

    def __init__(self) -> None:
        self._reader = FrameReader(_LARGEST_FRAME)

    def messages(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes. Raises ValueError for bytes that are not a feed's."""
        for kind, body in self._reader.frames(data):
            yield _decode(kind, body)


def _decode(kind: int, body: bytes) -> Message:
    try:
        match kind:
            case FeedFrame.STEP:
                return decode_outputs(body)
            case FeedFrame.OPENED:
                (version,) = _OPENED.unpack(body)
                if version != PROTOCOL_VERSION:
                    raise ValueError(f"the bridge speaks version {version}, not {PROTOCOL_VERSION}")
                return Opened()
            case FeedFrame.ENGINE:
                state, restarts = _ENGINE.unpack_from(body)
                text = body[_ENGINE.size :].decode()
                declaration = Declaration.from_json(text) if text else None
                return EngineStatus(EngineState(state), restarts, declaration)
            case FeedFrame.STATISTICS:
                in_flight, *statistics = _STATISTICS.unpack(body)
                return FeedStatistics(in_flight, Statistics(*statistics))
    except struct.error as error:
        raise ValueError(f"a frame of type {kind} ends too early or too late") from error
    raise ValueError(f"there is no frame of type {kind}")
