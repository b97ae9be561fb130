"""Requests to the engine, and the answers, for one event loop.

Requests go to Triton over a few kept gRPC streams; tokens, ends and errors come from the bridge over a feed,
one frame for each engine step (runner/protocol/feed.py). Only the errors of requests that the engine never
got come over gRPC.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, cast

import grpc

from runner.protocol.engine import Output, Statistics
from runner.protocol.feed import (
    FEED_PARAMETER,
    REQUEST_PARAMETER,
    EngineState,
    EngineStatus,
    FeedReader,
    FeedStatistics,
    Opened,
    encode_cancel,
)
from runner.protocol.tokens import request_tensors
from runner.triton.generation import Generation
from runner.triton.messages import messages
from runner.triton.model_repository import MODEL_NAME
from shared.errors import (
    EngineNotReady,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
    from_text,
)
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tritonclient.grpc import service_pb2, service_pb2_grpc

    from runner.protocol.engine import Declaration, Request
    from runner.protocol.feed import Message
    from shared.errors import CogTritonError

if not TYPE_CHECKING:
    service_pb2 = messages("service_pb2")
    service_pb2_grpc = messages("service_pb2_grpc")

log = get_logger()

_Requests = asyncio.Queue[service_pb2.ModelInferRequest | None]  # None: no more will come

_RECONNECT_SECONDS = 0.05
_MALFORMED_SECONDS = 5.0  # before another attempt with a bridge that cannot be understood
_CLOSE_SECONDS = 1.0
_STREAMS = 12  # to Triton: gRPC accepts the next request of a stream once it has sent the previous one
_LISTENING_SECONDS = 0.005  # between two checks whether Triton listens
_CHANNEL_OPTIONS = [("grpc.max_send_message_length", -1)]


class _Feed(asyncio.Protocol):
    """One connection to the bridge's socket."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        self._take = take
        self._reader = FeedReader()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[CogTritonError] = asyncio.get_running_loop().create_future()
        """Callbacks for those who wait for something."""

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

    def cancel(self, number: int) -> None:
        """Cancel a request."""
        if self._transport is not None:
            self._transport.write(encode_cancel(number))

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
    number: int = 0  # of the feed
    engine_was_ready: asyncio.Event = field(default_factory=asyncio.Event)
    requests: _Requests | None = None  # to Triton; None before it accepts any


class EngineClient:
    """The connection to the engine of one Triton on this machine. Call all methods in the event loop's
    thread.

    When Triton or the connection goes away, every generation fails immediately (TritonUnavailable), and the
    client reconnects by itself.
    """

    def __init__(
        self,
        grpc_address: str,
        feed_path: Path,
        response_timeout: float,
        model: str,
        promised: Sequence[str],
    ) -> None:
        self._grpc_address = grpc_address
        self._feed_path = feed_path
        self._model = model
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
        """Outputs of all requests so far: it changes as long as the engine generates."""

    @classmethod
    async def connect(
        cls,
        grpc_address: str,
        feed_path: Path,
        *,
        response_timeout: float,
        model: str = MODEL_NAME,
        promised: Sequence[str] = (),
    ) -> Self:
        """Start connecting; `wait_ready` waits until the engine is ready.

        `response_timeout`: seconds without an output after which a generation fails with TritonTimeout.
        `promised`: other addresses of this Triton, which accepts requests once all of them are open.
        """
        client = cls(grpc_address, feed_path, response_timeout, model, promised)
        client._tasks = [
            asyncio.create_task(client._keep_connected()),
            asyncio.create_task(client._watch_silence()),
        ]
        return client

    @property
    def state(self) -> EngineState:
        """STARTING also while there is no Triton, or one that does not accept requests yet."""
        takes_requests = self._connection is not None and self._connection.requests is not None
        return self._engine_state if takes_requests else EngineState.STARTING

    @property
    def in_flight(self) -> int:
        """How many generations of this client have not ended."""
        return len(self._generations)

    async def wait_ready(self) -> None:
        """Wait until the engine is loaded and requests can be sent."""
        await self._ready.wait()

    def generate(self, request: Request) -> Generation:
        """Send a request; iterate the result for its outputs. Never waits; `request_id` is not used."""
        loop = asyncio.get_running_loop()
        number = self._last_id = self._last_id + 1
        connection = self._connection
        generation = Generation(lambda: self._cancel(number), loop.time())
        if connection is None:
            generation.fail(TritonUnavailable(reason="it is being started"))
        elif connection.requests is None:
            generation.fail(EngineNotReady())
        else:
            self._generations[number] = generation
            connection.requests.put_nowait(_message(self._model, request, connection.number, number))
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
        streaming = asyncio.create_task(self._stream_requests(connection))
        try:
            ends: list[asyncio.Future[Any]] = [feed.ended, streaming]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connection = None
            self._ready.clear()
            self.statistics = Statistics()
            error = feed.ended.result() if feed.ended.done() else _closed()
            self._fail_all(error)
            feed.close()
            await _end_stream(streaming, connection.requests)
        return error

    async def _stream_requests(self, connection: _Connection) -> None:
        """Hand requests to Triton as they arrive; returns when a gRPC stream ends, ending the others too."""
        await connection.engine_was_ready.wait()
        for address in (self._grpc_address, *self._promised):
            await _listens(address)
        requests: _Requests = asyncio.Queue()
        async with grpc.aio.insecure_channel(self._grpc_address, _CHANNEL_OPTIONS) as channel:
            await channel.channel_ready()
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            streams = [asyncio.create_task(self._stream(stub, requests)) for _ in range(_STREAMS)]
            connection.requests = requests
            self._ready.set()
            try:
                await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
                connection.requests = None
                for _ in streams:
                    requests.put_nowait(None)
                await asyncio.wait(streams, timeout=_CLOSE_SECONDS)
            finally:
                for stream in streams:
                    stream.cancel()

    async def _stream(self, stub: service_pb2_grpc.GRPCInferenceServiceStub, requests: _Requests) -> None:
        try:
            async for response in stub.ModelStreamInfer(_taken(requests)):
                self._refused(response)
        except grpc.aio.AioRpcError as error:
            log.warning("a stream of requests to Triton ended", error=error.details())

    # ---- what arrives

    def _take(self, message: Message) -> None:
        match message:
            case Opened(number):
                if self._connection is not None:
                    self._connection.number = number
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

    def _take_status(self, status: EngineStatus) -> None:
        self._engine_state = status.state
        self.restarts = status.restarts
        self.declaration = status.declaration or self.declaration
        if status.state is EngineState.READY and self._connection is not None:
            self._connection.engine_was_ready.set()

    def _refused(self, response: service_pb2.ModelStreamInferResponse) -> None:
        """Triton or the bridge has refused a request: the feed will not mention it."""
        if not response.error_message:
            return
        error = from_text(response.error_message) or TritonUnknownError(reason=response.error_message)
        generation = self._generations.pop(int(response.infer_response.id or 0), None)
        if generation is not None:
            generation.fail(error)
        else:
            log.warning("Triton refused a request that nobody waits for", error=str(error))

    # ---- how generations end early

    def _cancel(self, number: int) -> None:
        if self._generations.pop(number, None) is not None and self._connection is not None:
            self._connection.feed.cancel(number)

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
    """Wait until Triton listens at `host:port`, a moment after the engine is ready.

    gRPC itself would try again after 100 ms.
    """
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except OSError:
            await asyncio.sleep(_LISTENING_SECONDS)
        else:
            writer.close()
            return


def _message(model: str, request: Request, feed: int, number: int) -> service_pb2.ModelInferRequest:
    tensors = request_tensors(request)
    message = service_pb2.ModelInferRequest(
        model_name=model,
        id=str(number),
        inputs=[_input(tensor.name, tensor.datatype, tensor.shape) for tensor in tensors],
        raw_input_contents=[tensor.data for tensor in tensors],
    )
    message.parameters[FEED_PARAMETER].int64_param = feed
    message.parameters[REQUEST_PARAMETER].int64_param = number
    return message


@lru_cache
def _input(
    name: str, datatype: str, shape: tuple[int, ...]
) -> service_pb2.ModelInferRequest.InferInputTensor:
    return service_pb2.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape)


async def _taken(requests: _Requests) -> AsyncIterator[service_pb2.ModelInferRequest]:
    while (message := await requests.get()) is not None:
        yield message


async def _end_stream(streaming: asyncio.Task[None], requests: _Requests | None) -> None:
    """End the gRPC streams, breaking them off only if necessary.

    Triton's server sometimes crashes when a client does that (triton-inference-server/server#7368, #8034).
    """
    if requests is not None:
        requests.put_nowait(None)
        await asyncio.wait([streaming], timeout=_CLOSE_SECONDS)
    streaming.cancel()
    await asyncio.gather(streaming, return_exceptions=True)
