"""Requests to the engine, and the answers, for one event loop.

Both go over a feed (runner/protocol/feed.py), the bridge's own socket: the bridge makes an ordinary request
to Triton of each, and sends the tokens, ends and errors of all in one frame for each engine step.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, cast

from runner.protocol.engine import Output, Statistics
from runner.protocol.feed import (
    LARGEST_REQUEST,
    EngineState,
    EngineStatus,
    FeedReader,
    FeedStatistics,
    Opened,
    encode_cancel,
    encode_request,
)
from runner.protocol.tokens import request_tensors
from runner.triton.generation import Generation
from shared.errors import (
    EngineNotReady,
    MalformedRequest,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
)
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from runner.protocol.engine import Declaration, Request
    from runner.protocol.feed import Message
    from shared.errors import CogTritonError

log = get_logger()

_RECONNECT_SECONDS = 0.05
_MALFORMED_SECONDS = 5.0  # before another attempt with a bridge that cannot be understood
_LISTENING_SECONDS = 0.005  # between two checks whether Triton listens


class _Feed(asyncio.Protocol):
    """One connection to the bridge's socket."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take
        self._reader = FeedReader()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[CogTritonError] = asyncio.get_running_loop().create_future()
        """Has, once the connection is over, the error with which its requests end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.messages(data):
                self._take(message)
        except ValueError as error:
            log.exception("a message from the bridge cannot be read")
            self._end(TritonMalformedEvent(reason=str(error)))
            self.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._end(_closed())

    def send(self, frame: bytes) -> None:
        """Send a frame to the bridge; what it does not take yet waits here."""
        if self._transport is not None:
            self._transport.write(frame)

    def close(self) -> None:
        """Send what is waiting, and end the connection."""
        if self._transport is not None:
            self._transport.close()

    def _end(self, error: CogTritonError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


@dataclass(slots=True)
class _Connection:
    """What lasts as long as one Triton process."""

    feed: _Feed
    engine_was_ready: asyncio.Event = field(default_factory=asyncio.Event)
    takes_requests: bool = False


class EngineClient:
    """The connection to the engine of one Triton on this machine. Call all methods in the event loop's
    thread.

    When Triton or the connection goes away, every generation fails immediately (TritonUnavailable), and the
    client reconnects by itself.
    """

    def __init__(self, feed_path: Path, response_timeout: float, promised: Sequence[str]) -> None:
        self._feed_path = feed_path
        self._promised = promised
        self._response_timeout = response_timeout
        self._generations: dict[int, Generation] = {}
        self._last_id = 0
        self._connection: _Connection | None = None
        self._ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._engine_state = EngineState.STARTING
        self.declaration: Declaration | None = None
        """Of the engine that is loaded, or was last."""
        self.restarts = 0
        """How often the engine process was started again since Triton started."""
        self.statistics = Statistics()
        """What the engine is doing; at most a second old."""
        self.output_count = 0
        """Outputs of all requests so far, without errors: it changes as long as the engine generates."""

    @classmethod
    async def connect(cls, feed_path: Path, *, response_timeout: float, promised: Sequence[str]) -> Self:
        """Start connecting; `wait_ready` waits until the engine is ready.

        `response_timeout`: seconds without an output after which a generation fails with TritonTimeout.
        `promised`: what is open once Triton accepts requests: paths of Unix sockets, and `host:port`s.
        """
        client = cls(feed_path, response_timeout, promised)
        client._tasks = [
            asyncio.create_task(client._keep_connected()),
            asyncio.create_task(client._watch_silence()),
        ]
        return client

    @property
    def state(self) -> EngineState:
        """STARTING also while there is no Triton, or one that does not accept requests yet."""
        takes_requests = self._connection is not None and self._connection.takes_requests
        return self._engine_state if takes_requests else EngineState.STARTING

    @property
    def in_flight(self) -> int:
        """How many generations of this client have not ended."""
        return len(self._generations)

    async def wait_ready(self) -> None:
        """Wait until the engine is loaded and requests can be sent."""
        await self._ready.wait()

    def generate(self, request: Request) -> Generation:
        """Send a request; iterate the result for its outputs. Never waits; `request_id` is not used.

        Raises InvalidArgument for a number that no tensor holds.
        """
        loop = asyncio.get_running_loop()
        number = self._last_id = self._last_id + 1
        connection = self._connection
        generation = Generation(lambda: self._cancel(number), loop.time())
        if connection is None:
            generation.fail(TritonUnavailable(reason="it is being started"))
        elif not connection.takes_requests:
            generation.fail(EngineNotReady())
        else:
            frame = encode_request(number, request_tensors(request))
            if len(frame) > LARGEST_REQUEST:
                generation.fail(MalformedRequest(reason=f"it has more than {LARGEST_REQUEST >> 20} MiB"))
                return generation
            self._generations[number] = generation
            connection.feed.send(frame)
        return generation

    async def close(self) -> None:
        """Cancel what runs, and end the connection."""
        for generation in list(self._generations.values()):
            generation.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- the connection

    async def _keep_connected(self) -> None:
        while True:
            pause = _RECONNECT_SECONDS
            try:
                error = await self._connect_once()
            except OSError:
                pass  # nobody listens
            else:
                pause = _MALFORMED_SECONDS if isinstance(error, TritonMalformedEvent) else pause
            await asyncio.sleep(pause)

    async def _connect_once(self) -> CogTritonError:
        """Connect, and serve the connection until it ends. Raises OSError when nobody listens."""
        loop = asyncio.get_running_loop()
        # The first frames may arrive before this returns: under uvloop they do.
        connection = self._connection = _Connection(feed := _Feed(self._take))
        try:
            await loop.create_unix_connection(lambda: feed, str(self._feed_path))
        except OSError:
            self._connection = None
            raise
        opening = asyncio.create_task(self._wait_open(connection))
        try:
            error = await feed.ended
        finally:
            opening.cancel()
            self._connection = None
            self._ready.clear()
            self.statistics = Statistics()
            self._fail_all(feed.ended.result() if feed.ended.done() else _closed())
            feed.close()
        return error

    async def _wait_open(self, connection: _Connection) -> None:
        """Let requests through once the engine is loaded and Triton listens, and so has all of its models."""
        await connection.engine_was_ready.wait()
        for address in self._promised:
            await _listens(address)
        connection.takes_requests = True
        self._ready.set()

    # ---- what arrives

    def _take(self, message: Message) -> None:
        match message:
            case Opened():
                pass
            case EngineStatus():
                self._take_status(message)
            case FeedStatistics():
                self.statistics = message.statistics
            case _:
                self._take_step(cast("Sequence[Output]", message))

    def _take_step(self, outputs: Sequence[Output]) -> None:
        now = asyncio.get_running_loop().time()
        generations = self._generations
        self.output_count += len(outputs)
        for output in outputs:
            generation = generations.get(output.request_id)
            if generation is not None and generation.take(output, now):
                del generations[output.request_id]
                if output.error is not None:
                    self.output_count -= 1

    def _take_status(self, status: EngineStatus) -> None:
        self._engine_state = status.state
        self.restarts = status.restarts
        self.declaration = status.declaration or self.declaration
        if status.state is EngineState.READY and self._connection is not None:
            self._connection.engine_was_ready.set()

    # ---- how generations end early

    def _cancel(self, number: int) -> None:
        if self._generations.pop(number, None) is not None and self._connection is not None:
            self._connection.feed.send(encode_cancel(number))

    def _fail_all(self, error: CogTritonError) -> None:
        generations, self._generations = self._generations, {}
        for generation in generations.values():
            generation.fail(error)

    async def _watch_silence(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._response_timeout / 4))
            latest = asyncio.get_running_loop().time() - self._response_timeout
            late = [number for number, it in self._generations.items() if it.last_output_at < latest]
            for number in late:
                self._generations[number].fail(TritonTimeout(seconds=self._response_timeout))
                self._cancel(number)


def _closed() -> TritonUnavailable:
    return TritonUnavailable(reason="the connection was closed")


async def _listens(address: str) -> None:
    """Wait until something listens there, a moment after the engine is ready."""
    while True:
        try:
            _, writer = await _connected(address)
        except OSError:
            await asyncio.sleep(_LISTENING_SECONDS)
        else:
            writer.close()
            return


async def _connected(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host.strip("[]"), int(port))
