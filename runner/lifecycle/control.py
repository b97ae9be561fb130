"""What the supervisor and its processes tell each other, over a Unix socket.

A message is a frame (runner/protocol/framing.py): the type is the number of its class below, the body a JSON
object with its fields.

The HTTP server (the front, or the worker of Cog's server) connects to the path that its supervisor gives it,
and reads until the end, which is the end of the supervisor:

    control = await Connection.connect(path)
    async for message in control:
        match message:
            case EngineAddress(): ...     # connect, get one token, then `control.send(Ready())`
            case SetupFailed(error): ...  # /health-check says so from now on
            case Drain(seconds): ...      # refuse with E2108, wait for the others, `control.send(Drained())`
    # end at once

It may be told about an engine that is still loading: `EngineAddress` says where it will answer, and stays
true when Triton is started again. A front that is started again gets it immediately.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from runner.protocol.framing import FrameReader, framed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CONTROL = "COG_TRITON_CONTROL"  # the environment variable with the socket's path, for Cog's worker
_MAX_BYTES = 1 << 20
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class SettingsRead:
    """From the preparation, first of all: how many seconds each step may take."""

    setup_seconds: float
    engine_start_seconds: float
    drain_seconds: float


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """To the front: where the engine answers, or will once it is loaded."""

    engine: str
    """Its kind, as in runner/engines/catalogue.py."""
    engine_dir: str
    """The unpacked engine.tar."""
    metrics_path: str
    """The Unix socket of Triton's own metrics: GET /metrics."""
    feed_path: str
    promised: list[str]
    """What is open once Triton has loaded its models: Unix sockets, by their paths, and `host:port`s."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """From the preparation, last of all: how Triton is started, and where the engine will be."""

    command: list[str]
    environment: dict[str, str]
    address: EngineAddress
    gate: list[str]
    """The command of what answers Triton's own clients (runner/front/triton); empty: nothing does."""


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """The set-up has failed for good; `error` is the text of a coded error. To and from every process."""

    error: str


@dataclass(frozen=True, slots=True)
class Ready:
    """From the front: the engine generates."""


@dataclass(frozen=True, slots=True)
class Refused:
    """From the front, which then waits for the end: it cannot serve with its settings.

    `error` is the text of a coded error.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Drain:
    """To the front: let predictions finish for that many seconds, and accept no new ones."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Drained:
    """From the front: none is running any more."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """From the front: end the runner, as SIGTERM does."""


Message = SettingsRead | EngineAddress | Prepared | SetupFailed | Ready | Refused | Drain | Drained | Shutdown
_KINDS = (SettingsRead, Prepared, EngineAddress, SetupFailed, Ready, Refused, Drain, Drained, Shutdown)


def encode(message: Message) -> bytes:
    """The message in the form that is sent over the socket."""
    return framed(_KINDS.index(type(message)), json.dumps(asdict(message)).encode())


def _decode(number: int, body: bytes) -> Message:
    fields = json.loads(body)
    kind = _KINDS[number]
    if kind is Prepared:
        fields["address"] = EngineAddress(**fields["address"])
    message: Message = kind(**fields)
    return message


class Connection:
    """One end of such a socket: an iterator of messages, until the other end closes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, path: str) -> Self:
        """Connect to the supervisor's socket. Raises OSError when nobody listens."""
        return cls(*await asyncio.open_unix_connection(path))

    def send(self, message: Message) -> None:
        """Send without waiting; nothing happens if the other end is gone."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        frames = FrameReader(_MAX_BYTES)
        try:
            while data := await self._reader.read(_READ_BYTES):
                for number, body in frames.frames(data):
                    yield _decode(number, body)
        except (ValueError, ConnectionError):
            return  # ValueError: not one of ours

    def close(self) -> None:
        """Close this end."""
        self._writer.close()
