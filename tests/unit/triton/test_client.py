"""What the client makes of what it is sent; the bridge's socket and the gRPC server are the test's."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc

from runner.protocol.engine import Declaration, FinishReason, Limits, Output, Request
from runner.protocol.feed import EngineState, FeedFrame, encode_cancel
from runner.protocol.outputs import encode_outputs
from runner.triton.client import _STREAMS, EngineClient
from shared.errors import (
    EngineNotReady,
    EngineProcessDied,
    TritonMalformedEvent,
    TritonTimeout,
    TritonUnavailable,
    TritonUnknownError,
)

REQUEST = Request(request_id=7, input_token_ids=[1, 2, 3], max_tokens=5)
DECLARATION = Declaration("mock", Limits(100, 99), frozenset({"seed"}))


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def engine_frame(state: EngineState) -> bytes:
    return framed(FeedFrame.ENGINE, struct.pack("<BI", state, 0) + DECLARATION.to_json().encode())


class Bridge(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Stands in for Triton and its bridge: a feed's socket, and a gRPC server that keeps what it is sent."""

    def __init__(self, path) -> None:
        self._path = path
        self.feeds: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.requests: asyncio.Queue[service_pb2.ModelInferRequest] = asyncio.Queue()
        self.answers: asyncio.Queue[service_pb2.ModelStreamInferResponse] = asyncio.Queue()
        self.streams_ended = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> int:
        self._server = await asyncio.start_unix_server(lambda *ends: self.feeds.put_nowait(ends), self._path)
        self._grpc = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._grpc)
        port = self._grpc.add_insecure_port("127.0.0.1:0")
        await self._grpc.start()
        return port

    async def ModelStreamInfer(self, requests, context):  # noqa: N802 - gRPC's name
        async def answer():
            while True:
                await context.write(await self.answers.get())

        answering = asyncio.create_task(answer())
        async for request in requests:
            self.requests.put_nowait(request)
        answering.cancel()
        self.streams_ended += 1

    async def open_feed(self, number: int = 4711, state: EngineState = EngineState.READY):
        """The next connection, greeted as the bridge does."""
        reader, writer = await self.feeds.get()
        self._writers.append(writer)
        writer.write(framed(FeedFrame.OPENED, struct.pack("<IQ", 3, number)) + engine_frame(state))
        return reader, writer

    async def stop(self) -> None:
        self._server.close()
        while not self.feeds.empty():
            self._writers.append(self.feeds.get_nowait()[1])
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await self._grpc.stop(0)


@asynccontextmanager
async def connected(tmp_path, response_timeout: float = 20):
    bridge = Bridge(tmp_path / "feed")
    port = await bridge.start()
    client = await EngineClient.connect(
        f"127.0.0.1:{port}", tmp_path / "feed", response_timeout=response_timeout
    )
    try:
        yield bridge, client
    finally:
        await client.close()
        await bridge.stop()


def step(*outputs: Output) -> bytes:
    return framed(FeedFrame.STEP, encode_outputs(outputs))


def run(test):
    return asyncio.run(asyncio.wait_for(test, 30))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_request_names_its_feed_and_outputs_come_over_it(tmp_path, run):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            _, feed = await bridge.open_feed(4711)
            await client.wait_ready()
            assert (client.state, client.declaration) == (EngineState.READY, DECLARATION)
            generation = client.generate(REQUEST)
            message = await bridge.requests.get()
            number = message.parameters["feed_request"].int64_param
            assert (message.model_name, message.id) == ("tensorrt_llm", str(number))
            assert message.parameters["feed"].int64_param == 4711
            raw = dict(zip((it.name for it in message.inputs), message.raw_input_contents, strict=True))
            assert struct.unpack("<3i", raw["input_ids"]) == (1, 2, 3)
            feed.write(step(Output(number, (5,)), Output(number + 1, (99,))))
            feed.write(step(Output(number, (6, 7), FinishReason.LENGTH)))
            tokens = [token async for outputs in generation for it in outputs for token in it.tokens]
            assert (tokens, generation.finish_reason) == ([5, 6, 7], FinishReason.LENGTH)
            assert (client.in_flight, client.output_count) == (0, 3)

    run(check())


def test_cancel_goes_over_the_feed(tmp_path):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            reader, _ = await bridge.open_feed()
            await client.wait_ready()
            client.generate(REQUEST).cancel()
            number = (await bridge.requests.get()).parameters["feed_request"].int64_param
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
def test_what_is_refused_over_grpc_fails_that_request_alone(tmp_path, text, error):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            _, feed = await bridge.open_feed()
            await client.wait_ready()
            refused, other = client.generate(REQUEST), client.generate(REQUEST)
            first, second = await bridge.requests.get(), await bridge.requests.get()
            answer = service_pb2.ModelStreamInferResponse(error_message=text)
            answer.infer_response.id = first.id
            bridge.answers.put_nowait(answer)
            with pytest.raises(error):
                await anext(refused)
            feed.write(step(Output(int(second.id), (1,), FinishReason.LENGTH)))
            assert [list(outputs) async for outputs in other] == [
                [Output(int(second.id), (1,), FinishReason.LENGTH)]
            ]

    run(check())


def test_when_the_feed_ends_all_fail_at_once_and_the_client_connects_anew(tmp_path):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            _, feed = await bridge.open_feed(1)
            await client.wait_ready()
            generations = [client.generate(REQUEST) for _ in range(3)]
            feed.close()
            for generation in generations:
                with pytest.raises(TritonUnavailable):
                    await anext(generation)
            assert client.state is EngineState.STARTING
            with pytest.raises(TritonUnavailable):
                await anext(client.generate(REQUEST))
            await bridge.open_feed(2)
            await client.wait_ready()
            client.generate(REQUEST)
            while (message := await bridge.requests.get()).parameters["feed"].int64_param == 1:
                pass
            assert message.parameters["feed"].int64_param == 2
            assert bridge.streams_ended == _STREAMS

    run(check())


@pytest.mark.parametrize("data", [b"\xff" * 20, framed(FeedFrame.STEP, b"\1\0\0\0"), framed(77, b"")])
def test_bytes_that_are_no_frames_end_the_connection_with_a_code(tmp_path, data):
    async def check():
        async with connected(tmp_path) as (bridge, client):
            _, feed = await bridge.open_feed()
            await client.wait_ready()
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
        async with connected(tmp_path, response_timeout=0.2) as (bridge, client):
            reader, _ = await bridge.open_feed()
            await client.wait_ready()
            with pytest.raises(TritonTimeout):
                await anext(client.generate(REQUEST))
            assert len(await reader.readexactly(13)) == 13

    run(check())


def test_without_triton(tmp_path):
    async def check():
        client = await EngineClient.connect("127.0.0.1:1", tmp_path / "nothing", response_timeout=5)
        with pytest.raises(TritonUnavailable):
            await anext(client.generate(REQUEST))
        await client.close()

    run(check())
