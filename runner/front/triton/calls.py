"""Triton's gRPC protocol: the calls that are forwarded, as the bytes that they are.

A call is never cancelled at Triton, which may free twice what it holds then (CVE-2025-23322). When a client
leaves, its requests are ended by way of the bridge, and what still comes for it is read to its end.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from runner.protocol.feed import GROUP_PARAMETER
from runner.triton.messages import messages
from shared.errors import PortInUse, TritonCallUnknown, TritonUnavailable, from_text
from shared.resolving import written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    from runner.front.triton.leavers import Leavers
    from runner.triton.address import Address
    from runner.triton.server import TritonSockets

_SERVICE = "/inference.GRPCInferenceService/"
_STREAM = f"{_SERVICE}ModelStreamInfer"
_INFER = f"{_SERVICE}ModelInfer"
_UNARY = frozenset(
    f"{_SERVICE}{name}"
    for name in (
        "ServerLive",
        "ServerReady",
        "ServerMetadata",
        "ModelReady",
        "ModelMetadata",
        "ModelConfig",
        "ModelStatistics",
        "ModelInfer",
        "RepositoryIndex",
    )
) | {"/grpc.health.v1.Health/Check"}
_CONNECTIONS = 1024
_CALLS_OF_A_CONNECTION = 1024
_UNREAD = 64  # responses for a client that has not taken them
_OPTIONS = {
    "grpc.so_reuseport": 0,  # a port that is taken is to be an error
    "grpc.max_allowed_incoming_connections": _CONNECTIONS,
    "grpc.max_concurrent_streams": _CALLS_OF_A_CONNECTION,
    "grpc.max_metadata_size": 1 << 14,
    "grpc.server_handshake_timeout_ms": 10_000,
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    # tritonclient's examples ping every 10 s, without calls too.
    "grpc.http2.min_ping_interval_without_data_ms": 5_000,
    "grpc.http2.max_ping_strikes": 10,
}
_UPSTREAM_OPTIONS = {
    "grpc.max_receive_message_length": -1,
    "grpc.max_send_message_length": -1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
}


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc] # grpc comes without types
    """A gRPC server in front of Triton's. For one event loop."""

    def __init__(self, sockets: TritonSockets, leavers: Leavers, most_bytes: int, most_calls: int) -> None:
        """`most_bytes`: of a message; `most_calls`: at the same time."""
        self._channel = grpc.aio.insecure_channel(f"unix:{sockets.grpc}", list(_UPSTREAM_OPTIONS.items()))
        options = {**_OPTIONS, "grpc.max_receive_message_length": most_bytes}
        self._server = grpc.aio.server(
            handlers=(self,), options=list(options.items()), maximum_concurrent_rpcs=most_calls
        )
        self._leavers = leavers
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self, address: Address) -> None:
        """Listen there. Raises PortInUse."""
        try:
            self._server.add_insecure_port(written(*address))
        except RuntimeError:
            raise PortInUse(port=address.port) from None
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Accept no more calls; those in progress have `grace` seconds."""
        await self._server.stop(grace)
        await self._channel.close()

    def service(self, details: Any) -> Any:
        """How a call is answered: with its messages as bytes, if it is one of those above."""
        name: str = details.method
        if name == _STREAM:
            return grpc.stream_stream_rpc_method_handler(self._stream)
        if name in _UNARY:
            handler = self._infer if name == _INFER else partial(self._ask, self._channel.unary_unary(name))
            return grpc.unary_unary_rpc_method_handler(handler)

        async def refuse(_requests: AsyncIterator[bytes], context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, str(TritonCallUnknown(call=name)))

        return grpc.stream_stream_rpc_method_handler(refuse)

    async def _ask(self, open_call: Any, request: bytes, context: Any) -> Any:
        """What Triton answers without the engine."""
        try:
            return await asyncio.shield(self._keep(_finished(open_call(request))))
        except grpc.aio.AioRpcError as error:
            await _abort(context, error)

    async def _infer(self, request: bytes, context: Any) -> Any:
        group = self._leavers.new_group()
        call = self._keep(_finished(self._channel.unary_unary(_INFER)(request + _marked(group))))
        with self._left_to_end(call, group):
            try:
                return await asyncio.shield(call)
            except grpc.aio.AioRpcError as error:
                await _abort(context, error)

    async def _stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        group = self._leavers.new_group()
        call = self._channel.stream_stream(_STREAM)()
        answers = _Answers(call)
        reading = self._keep(answers.read())
        self._keep(_send(requests, call, _marked(group)))
        with self._left_to_end(reading, group):
            try:
                async for answer in answers:
                    yield answer
                await reading
            except grpc.aio.AioRpcError as error:
                await _abort(context, error)
            finally:
                answers.drop()

    @contextmanager
    def _left_to_end(self, call: asyncio.Task[Any], group: int) -> Iterator[None]:
        """If its client leaves before the call is over, have the engine stop: then it ends by itself."""
        call.add_done_callback(lambda _: self._leavers.discard(group))
        try:
            yield
        finally:
            if not call.done():
                self._leavers.add(group)

    def _keep(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Do it whether or not its client stays."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its client has it, or has left


class _Answers:
    """The answers of a stream, read whether or not its client takes them: reading is never broken off, which
    would cancel the stream.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(_UNREAD)
        self._dropped = False

    async def read(self) -> None:
        """Read to the end. Raises AioRpcError when Triton ends the stream with an error."""
        try:
            while (answer := await self._call.read()) is not grpc.aio.EOF:
                if not self._dropped:
                    await self._queue.put(answer)
            if (code := await self._call.code()) is not grpc.StatusCode.OK:
                raise grpc.aio.AioRpcError(code, None, None, await self._call.details())
        finally:
            if not self._dropped:
                await self._queue.put(None)

    def drop(self) -> None:
        """Nobody takes them any more."""
        self._dropped = True
        while not self._queue.empty():
            self._queue.get_nowait()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (answer := await self._queue.get()) is not None:
            yield answer


def _marked(group: int) -> bytes:
    """What makes a request one of the group: fields of a message may be added at its end."""
    message = messages("service_pb2").ModelInferRequest()
    message.parameters[GROUP_PARAMETER].int64_param = group
    serialized: bytes = message.SerializeToString()
    return serialized


async def _finished(call: Any) -> bytes:
    answer: bytes = await call
    return answer


async def _send(requests: AsyncIterator[bytes], call: Any, mark: bytes) -> None:
    """Pass on what a client sends until it ends or leaves, and that it has."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # Triton has ended the stream
        async for request in requests:
            await call.write(request + mark)
        await call.done_writing()


async def _abort(context: Any, error: grpc.aio.AioRpcError) -> None:
    """End a call as Triton ended it; where Triton itself is gone, in our words."""
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE and from_text(details) is None:
        details = str(TritonUnavailable(reason="it is being started"))
    await context.abort(error.code(), details)
