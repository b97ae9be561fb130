"""Requests by the clock, and how late the client itself was."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from cli.output import counted
from cli.perf.request import ENDLESS, STALLED, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cli.perf.plan import Prompts, Step
    from cli.perf.targets import Target

WATCH_SECONDS = 0.25
"""How often it is examined whether a request is to be abandoned."""

_TICK = 0.01
# Events of an answer: servers may make several of a token, or answer at a length of their own.
_MOST_FOR_A_TOKEN, _MOST_AT_LEAST = 10, 10_000
_BETWEEN_BATCHES = 1.0  # as in the original's test_perf.py
_COLLECT_AFTER = 100_000  # objects: a collection holds up every stream


@dataclass
class Load:
    """A step while it runs, and its result; times are those of `time.perf_counter`."""

    step: Step
    requests: list[Request] = field(default_factory=list)
    begun: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time that this process used, with all of its threads."""
    lags: list[float] = field(default_factory=list)
    """How late the client's own clock was, every 10 ms."""
    running: int = 0


class Runner:
    """Runs steps against one target."""

    def __init__(
        self,
        target: Target,
        prompts: Prompts,
        *,
        stall_seconds: float,
        on_end: Callable[[Request], None],
    ) -> None:
        """A request that gets nothing for `stall_seconds`, or no end, is abandoned; `on_end` gets each that
        ends.
        """
        self._target, self._prompts, self._stall_seconds = target, prompts, stall_seconds
        self._on_end = on_end
        self._numbers = count()
        self._under_way: dict[Request, None] = {}

    async def run(self, load: Load) -> None:
        """One step, until all of its requests have ended."""
        loop = asyncio.get_running_loop()
        thresholds = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER, *thresholds[1:])
        helpers = [loop.create_task(self._watch()), loop.create_task(_feel(load.lags))]
        load.begun, cpu = time.perf_counter(), time.process_time()
        try:
            await self._send_all(load)
        finally:
            load.ended, load.cpu_seconds = time.perf_counter(), time.process_time() - cpu
            for helper in helpers:
                helper.cancel()
            gc.set_threshold(*thresholds)
            gc.unfreeze()

    async def _send_all(self, load: Load) -> None:
        step = load.step
        if step.rate is not None:
            async with asyncio.TaskGroup() as group:
                for offset in step.offsets():
                    when = load.begun + offset
                    if (left := when - time.perf_counter()) > 0:
                        await asyncio.sleep(left)
                    group.create_task(self._one(load, when))
        elif step.batch is not None:
            while self._goes_on(load):
                async with asyncio.TaskGroup() as group:
                    now = time.perf_counter()
                    for _ in range(_room(load, step.batch)):
                        group.create_task(self._one(load, now))
                await asyncio.sleep(_BETWEEN_BATCHES if self._goes_on(load) else 0)
        else:
            assert step.concurrency is not None
            async with asyncio.TaskGroup() as group:
                for _ in range(_room(load, step.concurrency)):
                    group.create_task(self._one_after_another(load))

    async def _one_after_another(self, load: Load) -> None:
        while self._goes_on(load):
            request = await self._one(load, time.perf_counter())
            if request.failure and not request.events:
                await asyncio.sleep(_TICK)  # a server that refuses is not asked in a tight loop

    def _goes_on(self, load: Load) -> bool:
        is_time = time.perf_counter() - load.begun < load.step.seconds
        return is_time and (load.step.most is None or len(load.requests) < load.step.most)

    async def _one(self, load: Load, intended: float) -> Request:
        request = Request(next(self._numbers), intended)
        load.requests.append(request)
        load.running += 1
        self._under_way[request] = None
        request.sent = time.perf_counter()
        try:
            await self._target.send(request, self._prompts[request.number])
        except asyncio.CancelledError:
            request.unfinished = request.failure is None
            raise
        finally:
            del self._under_way[request]
            load.running -= 1
            request.ended = request.ended or time.perf_counter()
            self._on_end(request)
        return request

    async def _watch(self) -> None:
        """Abandon the requests for which it is time."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for request in list(self._under_way):
                abandon_if_due(request, self._target, self._stall_seconds)


def abandon_if_due(request: Request, target: Target, stall_seconds: float) -> bool:
    """Give up a request that has received nothing for too long, or far more than it asked for."""
    asked = target.ask.output_tokens
    if len(request.events) > max(_MOST_AT_LEAST, _MOST_FOR_A_TOKEN * asked):
        request.fail(ENDLESS, f"{len(request.events):,} events came for {counted(asked, 'token')}")
    elif (request.events[-1] if request.events else request.sent) < time.perf_counter() - stall_seconds:
        request.fail(STALLED, f"nothing came for {stall_seconds:g} s")
    elif request.failure != ENDLESS:
        return False
    target.give_up(request)
    return True


def _room(load: Load, wanted: int) -> int:
    most = load.step.most
    return wanted if most is None else min(wanted, most - len(load.requests))


async def _feel(lags: list[float]) -> None:
    """Measure how late a clock is that shares the event loop with the streams."""
    while True:
        due = time.perf_counter() + _TICK
        await asyncio.sleep(_TICK)
        lags.append(max(time.perf_counter() - due, 0.0))


@contextlib.contextmanager
def open_files() -> Iterator[None]:
    """Allow as many connections as the machine permits, while this lasts."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
