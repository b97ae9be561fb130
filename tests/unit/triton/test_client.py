"""What the client makes of what it is sent; the bridge's socket is the test's."""

from __future__ import annotations

import asyncio
import struct
from array import array
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
import uvloop

from runner.protocol.engine import Declaration, FinishReason, Limits, Output, Request
from runner.protocol.feed import LARGEST_REQUEST, EngineState, FeedFrame, encode_cancel
from runner.protocol.framing import framed
from runner.protocol.outputs import ERROR_FINISH, encode_outputs
from runner.triton.client import EngineClient
from shared.cog.server import free_port
from shared.errors import (
    EngineInternalError,
    EngineNotReady,
    EngineProcessDied,
    MalformedRequest,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
)
from tests.support.feed_request import decode_request
from tests.support.waiting import until

REQUEST = Request(request_id=7, input_token_ids=[1, 2, 3], max_tokens=5)
DECLARATION = Declaration("mock", Limits(100, 99), frozenset({"seed"}))


def engine_frame(state: EngineState) -> bytes:
    return framed(FeedFrame.ENGINE, struct.pack("<BI", state, 0) + DECLARATION.to_json().encode())


class Bridge:
    """Stands in for the bridge: a feed's socket."""

    def __init__(self, path) -> None:
        self._path = path
        self.feeds: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(lambda *ends: self.feeds.put_nowait(ends), self._path)

    async def open_feed(self, state: EngineState = EngineState.READY):
        """The next connection, greeted as the bridge does."""
        reader, writer = await self.feeds.get()
        self._writers.append(writer)
        writer.write(framed(FeedFrame.OPENED, struct.pack("<I", 4)) + engine_frame(state))
        return reader, writer

    async def stop(self) -> None:
        self._server.close()
        while not self.feeds.empty():
            self._writers.append(self.feeds.get_nowait()[1])
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def next_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Type and body of what the client sends next."""
    length, kind = struct.unpack("<IB", await reader.readexactly(5))
    return kind, await reader.readexactly(length - 1)


async def next_request(reader: asyncio.StreamReader) -> tuple[int, dict[str, bytes]]:
    """The number of the request that comes next, and its tensors."""
    kind, body = await next_frame(reader)
    assert kind == FeedFrame.REQUEST
    return decode_request(body)


@asynccontextmanager
async def connected(tmp_path, response_timeout: float = 20, promised=()):
    bridge = Bridge(tmp_path / "feed")
    await bridge.start()
    client = await EngineClient.connect(
        tmp_path / "feed", response_timeout=response_timeout, promised=promised
    )
    try:
        yield bridge, client
    finally:
        await client.close()
        await bridge.stop()


@asynccontextmanager
async def ready(tmp_path, **options):
    """A client whose engine is ready, and the bridge's ends of its feed."""
    async with connected(tmp_path, **options) as (bridge, client):
        reader, feed = await bridge.open_feed()
        await client.wait_ready()
        yield client, reader, feed


def step(*outputs: Output) -> bytes:
    return framed(FeedFrame.STEP, encode_outputs(outputs))


def run(test):
    return asyncio.run(asyncio.wait_for(test, 30))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_requests_and_outputs_go_over_the_feed(tmp_path, run):
    async def check():
        async with ready(tmp_path) as (client, reader, feed):
            assert (client.state, client.declaration) == (EngineState.READY, DECLARATION)
            generation = client.generate(REQUEST)
            number, tensors = await next_request(reader)
            assert struct.unpack("<3i", tensors["input_ids"]) == (1, 2, 3)
            feed.write(step(Output(number, (5,)), Output(number + 1, (99,))))
            feed.write(step(Output(number, (6, 7), FinishReason.LENGTH)))
            tokens = [token async for outputs in generation for it in outputs for token in it.tokens]
            assert (tokens, generation.finish_reason) == ([5, 6, 7], FinishReason.LENGTH)
            assert (client.in_flight, client.output_count) == (0, 3)

    run(check())


def test_an_engine_that_only_fails_does_not_generate(tmp_path):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            reader, feed = await bridge.open_feed()
            await client.wait_ready()
            generation = client.generate(REQUEST)
            number, _ = await next_request(reader)
            feed.write(step(Output(number, error=EngineInternalError(reason="a bug"))))
            with pytest.raises(EngineInternalError):
                await anext(aiter(generation))
            assert client.output_count == 0

    run(check())


def test_a_cancel_comes_after_its_request(tmp_path):
    async def check():
        async with ready(tmp_path) as (client, reader, _):
            client.generate(REQUEST).cancel()
            number, _ = await next_request(reader)
            assert await reader.readexactly(13) == encode_cancel(number)
            assert client.in_flight == 0

    run(check())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("E2400 EngineProcessDied: it was killed. Try again.", EngineProcessDied),
        ("unexpected", TritonUnknownError),
    ],
)
def test_what_is_refused_fails_that_request_alone(tmp_path, text, error):
    async def check():
        async with ready(tmp_path) as (client, reader, feed):
            refused, other = client.generate(REQUEST), client.generate(REQUEST)
            (first, _), (second, _) = await next_request(reader), await next_request(reader)
            head = struct.pack("<IQBBI", 1, first, ERROR_FINISH, 0, len(text))
            feed.write(framed(FeedFrame.STEP, head + text.encode()))
            with pytest.raises(error):
                await anext(refused)
            feed.write(step(Output(second, (1,), FinishReason.LENGTH)))
            assert [list(outputs) async for outputs in other] == [[Output(second, (1,), FinishReason.LENGTH)]]

    run(check())


def test_a_request_that_no_frame_holds_fails_alone(tmp_path):
    async def check():
        async with ready(tmp_path) as (client, reader, _):
            words = replace(REQUEST, input_token_ids=array("i", bytes(LARGEST_REQUEST)))
            with pytest.raises(MalformedRequest, match="64 MiB"):
                await anext(client.generate(words))
            client.generate(REQUEST)
            await next_request(reader)
            assert client.in_flight == 1

    run(check())


def test_requests_wait_until_triton_listens_where_it_promised(tmp_path):
    async def check():
        port = free_port()
        async with connected(tmp_path, promised=[f"127.0.0.1:{port}"]) as (bridge, client):
            await bridge.open_feed()
            await until(lambda: client.declaration is not None)
            assert client.state is EngineState.STARTING
            with pytest.raises(EngineNotReady):
                await anext(client.generate(REQUEST))
            listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
            await client.wait_ready()
            assert client.state is EngineState.READY
            listener.close()

    run(check())


def test_or_at_a_unix_socket(tmp_path):
    async def check():
        metrics = tmp_path / "metrics"
        async with connected(tmp_path, promised=[str(metrics)]) as (bridge, client):
            await bridge.open_feed()
            await until(lambda: client.declaration is not None)
            assert client.state is EngineState.STARTING
            listener = await asyncio.start_unix_server(lambda _, writer: writer.close(), metrics)
            await client.wait_ready()
            listener.close()

    run(check())


def test_when_the_feed_ends_all_fail_at_once_and_the_client_connects_anew(tmp_path):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            _, feed = await bridge.open_feed()
            await client.wait_ready()
            generations = [client.generate(REQUEST) for _ in range(3)]
            feed.close()
            for generation in generations:
                with pytest.raises(TritonUnavailable):
                    await anext(generation)
            assert client.state is EngineState.STARTING
            with pytest.raises(TritonUnavailable):
                await anext(client.generate(REQUEST))
            reader, _ = await bridge.open_feed()
            await client.wait_ready()
            client.generate(REQUEST)
            assert await next_request(reader)

    run(check())


@pytest.mark.parametrize("data", [b"\xff" * 20, framed(FeedFrame.STEP, b"\1\0\0\0"), framed(77, b"")])
def test_bytes_that_are_no_frames_end_the_connection_with_a_code(tmp_path, data):
    async def check():
        async with ready(tmp_path) as (client, _, feed):
            generation = client.generate(REQUEST)
            feed.write(data)
            with pytest.raises(TritonMalformedEvent):
                await anext(generation)

    run(check())


def test_before_the_engine_is_loaded_requests_fail_at_once(tmp_path):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            await bridge.open_feed(state=EngineState.STARTING)
            await asyncio.sleep(0.05)
            with pytest.raises(EngineNotReady):
                await anext(client.generate(REQUEST))
            assert client.state is EngineState.STARTING

    run(check())


def test_an_engine_that_says_nothing(tmp_path):
    async def check():
        async with ready(tmp_path, response_timeout=0.2) as (client, reader, _):
            with pytest.raises(TritonTimeout):
                await anext(client.generate(REQUEST))
            number, _ = await next_request(reader)
            assert await reader.readexactly(13) == encode_cancel(number)

    run(check())


def test_without_triton(tmp_path):
    async def check():
        client = await EngineClient.connect(tmp_path / "nothing", response_timeout=5, promised=[])
        with pytest.raises(TritonUnavailable):
            await anext(client.generate(REQUEST))
        await client.close()

    run(check())
