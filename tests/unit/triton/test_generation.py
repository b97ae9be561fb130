"""What the reader of one request sees, whatever comes in which order."""

from __future__ import annotations

import asyncio

import pytest

from runner.protocol.engine import FinishReason, Output, Request
from runner.triton.generation import Generation
from shared.errors import EngineInternalError, TritonUnavailable
from tests.support.fake_engine_client import FakeEngineClient
from tests.support.mock_engine import FAIL, HANG, mock_tokens


@pytest.fixture
def cancelled():
    return []


@pytest.fixture
def generation(cancelled):
    return Generation(lambda: cancelled.append(True), 0.0)


async def read(generation: Generation) -> list[list[int]]:
    """The tokens of each wake-up."""
    return [[token for output in outputs for token in output.tokens] async for outputs in generation]


def test_all_that_waits_comes_at_once(generation):
    for token in range(3):
        generation.take(Output(1, (token,)), 0)
    generation.take(Output(1, (3,), FinishReason.LENGTH), 0)
    assert asyncio.run(read(generation)) == [[0, 1, 2, 3]]
    assert generation.finish_reason is FinishReason.LENGTH


def test_a_reader_that_waits_is_woken_for_each(generation):
    async def both():
        reading = asyncio.create_task(read(generation))
        for token in range(3):
            await asyncio.sleep(0.001)
            assert not generation.take(Output(1, (token,)), 0)
        await asyncio.sleep(0.001)
        assert generation.take(Output(1, (), FinishReason.END_ID), 0)
        return await reading

    assert asyncio.run(both()) == [[0], [1], [2]]


def test_an_error_comes_after_the_tokens_before_it(generation):
    generation.take(Output(1, (1,)), 0)
    generation.take(Output(1, error=EngineInternalError(reason="x")), 0)

    async def check():
        assert [output.tokens for output in await anext(generation)] == [(1,)]
        with pytest.raises(EngineInternalError):
            await anext(generation)

    asyncio.run(check())


def test_cancel_tells_the_engine_once_and_ends_the_iteration(generation, cancelled):
    async def check():
        reading = asyncio.create_task(read(generation))
        await asyncio.sleep(0)
        generation.cancel()
        generation.cancel()
        return await reading

    assert asyncio.run(check()) == []
    assert cancelled == [True]
    assert generation.finish_reason is FinishReason.CANCELLED


def test_a_cancel_after_the_end_tells_nobody(generation, cancelled):
    generation.take(Output(1, (), FinishReason.LENGTH), 0)
    generation.cancel()
    assert (cancelled, generation.finish_reason) == ([], FinishReason.LENGTH)


def test_a_reader_that_is_cancelled_can_read_again(generation):
    async def check():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(generation), 0.01)
        generation.take(Output(1, (1,)), 0)
        return await anext(generation)

    assert asyncio.run(check()) == [Output(1, (1,))]


def test_the_fake_gives_each_request_its_tokens():
    async def check():
        async with FakeEngineClient() as client:
            requests = [Request(i, [1], 10 + i) for i in range(3)] + [Request(9, [FAIL], 10)]
            results = await asyncio.gather(*map(read, map(client.generate, requests)), return_exceptions=True)
            assert [[t for piece in result for t in piece] for result in results[:3]] == [
                mock_tokens(10 + i) for i in range(3)
            ]
            assert isinstance(results[3], EngineInternalError)
            hanging = client.generate(Request(10, [HANG], 10))
            assert client.in_flight == 1
            client.die()
            with pytest.raises(TritonUnavailable):
                await anext(hanging)

    asyncio.run(check())
