"""A hung engine shows."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from runner.lifecycle import engine_probe
from runner.lifecycle.engine_probe import EngineProbe
from shared.errors import (
    EngineGaveUp,
    EngineInternalError,
    EngineNotReady,
    EngineProcessDied,
    InvalidArgument,
    TritonTimeout,
)


@pytest.fixture
def probed(monkeypatch):
    """`probed(ask, token_count)`: `is_alive` after a good start and some looks."""
    monkeypatch.setattr(engine_probe, "_INTERVAL_SECONDS", 0)

    def run(ask, token_count) -> bool:
        async def watch() -> bool:
            probe = EngineProbe(answer, token_count)
            await probe.first()
            probe._ask = ask
            watching = asyncio.create_task(probe.watch())
            for _ in range(20):
                await asyncio.sleep(0)
            watching.cancel()
            return probe.is_alive

        return asyncio.run(watch())

    return run


async def answer():
    pass


async def hang():
    raise TritonTimeout(seconds=5)


def test_an_engine_that_gives_a_token_is_alive(probed):
    assert probed(answer, lambda: 0)


def test_an_engine_that_gives_none_is_not(probed):
    assert not probed(hang, lambda: 0)


def test_an_engine_whose_tokens_flow_is_not_asked(probed):
    assert probed(hang, itertools.count().__next__)


def test_the_first_token_is_waited_for():
    errors = [EngineNotReady(), TritonTimeout(seconds=5)]

    async def ask() -> None:
        if errors:
            raise errors.pop()

    probe = EngineProbe(ask, lambda: 0)
    assert not probe.is_alive
    asyncio.run(probe.first(retry_seconds=0))
    assert probe.is_alive
    assert not errors


@pytest.mark.parametrize(
    ("errors", "asked"),
    [
        ([EngineProcessDied(reason="exit status 1"), EngineGaveUp()], 2),
        ([EngineInternalError(reason="KeyError when it was submitted")], engine_probe._MAX_FAILURES),
        ([EngineNotReady(), InvalidArgument(argument="input_ids", value="9", reason="at most 8")], 2),
    ],
)
def test_an_engine_that_will_give_none_is_not_waited_for(errors, asked):
    times = itertools.count(1)

    async def ask() -> None:
        last = next(times)
        raise errors[min(last, len(errors)) - 1]

    with pytest.raises(type(errors[-1])):
        asyncio.run(asyncio.wait_for(EngineProbe(ask, lambda: 0).first(retry_seconds=0), 10))
    assert next(times) == asked + 1


def test_an_engine_that_dies_of_each_request_is_given_up():
    errors = itertools.cycle([EngineProcessDied(reason="exit status 1"), EngineNotReady()])
    deaths = itertools.count()

    async def ask() -> None:
        error = next(errors)
        if isinstance(error, EngineProcessDied):
            next(deaths)
        raise error

    with pytest.raises(EngineGaveUp):
        asyncio.run(asyncio.wait_for(EngineProbe(ask, lambda: 0).first(retry_seconds=0), 10))
    assert next(deaths) == 6


def test_an_engine_that_fails_now_and_then_is_waited_for():
    errors = [EngineInternalError(reason="a bug"), EngineNotReady()] * engine_probe._MAX_FAILURES

    async def ask() -> None:
        if errors:
            raise errors.pop()

    asyncio.run(EngineProbe(ask, lambda: 0).first(retry_seconds=0))
    assert not errors
