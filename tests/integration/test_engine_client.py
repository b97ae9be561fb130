"""The runner's client of Triton and its feed, against a real Triton with the mock engine."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from tritonclient.grpc import service_pb2

from runner.protocol.engine import FinishReason, Request
from runner.protocol.feed import EngineState
from runner.triton.client import EngineClient
from runner.triton.model_repository import MODEL_NAME, TEXT_MODEL_NAME
from shared.errors import CogTritonError, TritonUnavailable, TritonUnknownError
from tests.support.mock_engine import mock_tokens, write_mock
from tests.support.processes import marked, wait_gone
from tests.support.triton import triton
from tests.support.waiting import until

FOR_EVER = 1_000_000_000
STREAMS = 64


@asynccontextmanager
async def connected(server):
    client = await EngineClient.connect(
        server.feed_path, response_timeout=20, promised=[f"127.0.0.1:{server.grpc_port}"]
    )
    try:
        await client.wait_ready()
        yield client
    finally:
        await client.close()


async def outcome(
    client, tokens: int, taken: list[int] | None = None
) -> tuple[list[int], FinishReason | type[CogTritonError]]:
    """The tokens of one request, which `taken` holds as they come, and how it ended."""
    taken = [] if taken is None else taken
    generation = client.generate(Request(0, [1], tokens))
    try:
        async for outputs in generation:
            for output in outputs:
                taken += output.tokens
    except CogTritonError as error:
        return taken, type(error)
    return taken, generation.finish_reason


async def under_load(client, tokens: int) -> list[asyncio.Task]:
    """Requests for that many tokens, each of which has got some."""
    taken: list[list[int]] = [[] for _ in range(STREAMS)]
    running = [asyncio.create_task(outcome(client, tokens, it)) for it in taken]
    await until(lambda: all(taken))
    return running


def assert_failed(outcomes, *errors: type[CogTritonError]) -> None:
    for tokens, end in outcomes:
        assert end in errors
        assert tokens == mock_tokens(len(tokens))
        assert tokens


def test_sigkill_of_triton_fails_all_and_the_client_finds_the_next_one(tmp_path):
    engine = write_mock(tmp_path / "engine", tokens_per_second=200)

    async def check() -> None:
        with triton(tmp_path, engine) as server:
            async with connected(server) as client:
                before = server.engine_pid()
                running = await under_load(client, FOR_EVER)
                server.process.kill()
                server.process.wait()
                assert_failed(await asyncio.gather(*running), TritonUnavailable)
                assert client.state is EngineState.STARTING
                assert await outcome(client, 5) == ([], TritonUnavailable)
                assert wait_gone(server.mark) == {}
                server.start()
                await client.wait_ready()
                assert server.engine_pid() != before
                whole = [asyncio.create_task(outcome(client, 100)) for _ in range(STREAMS)]
                assert await asyncio.gather(*whole) == [(mock_tokens(100), FinishReason.LENGTH)] * STREAMS

    asyncio.run(asyncio.wait_for(check(), 200))


def test_unloading_the_models_under_load_lets_what_runs_end_and_then_ends_the_engine(tmp_path):
    engine = write_mock(tmp_path / "engine", tokens_per_second=200)

    async def check() -> None:
        with triton(tmp_path, engine, unloads=True) as server:
            async with connected(server) as client:
                running = await under_load(client, 2000)
                for name in (MODEL_NAME, TEXT_MODEL_NAME):
                    server.stub.RepositoryModelUnload(
                        service_pb2.RepositoryModelUnloadRequest(model_name=name)
                    )
                assert await outcome(client, 5) == ([], TritonUnknownError)
                assert not any(request.done() for request in running)
                assert await asyncio.gather(*running) == [(mock_tokens(2000), FinishReason.LENGTH)] * STREAMS
            await until(lambda: "runner.engines.process" not in str(marked(server.mark)))
            for name in (MODEL_NAME, TEXT_MODEL_NAME):
                load = service_pb2.RepositoryModelLoadRequest(model_name=name)
                await asyncio.to_thread(server.stub.RepositoryModelLoad, load)
            async with connected(server) as client:
                assert await outcome(client, 5) == (mock_tokens(5), FinishReason.LENGTH)

    asyncio.run(asyncio.wait_for(check(), 200))
