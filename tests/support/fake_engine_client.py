"""An `EngineClient` without Triton: an engine in this process that makes tokens by the clock.

Token i of a request is 100 + i % 50, as the mock's are; a prompt with 8 fails half-way, one with 9 hangs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from runner.protocol.engine import MAX_TOKENS, Declaration, FinishReason, Limits, Output, Statistics
from runner.protocol.feed import EngineState
from runner.triton.generation import Generation
from shared.errors import EngineInternalError, EngineNotReady, TritonUnavailable
from tests.support.mock_engine import COUNT, FAIL, FIRST, HANG

if TYPE_CHECKING:
    from runner.protocol.engine import Request
    from shared.errors import CogTritonError

EVERYTHING = Declaration(
    "mock", Limits(MAX_TOKENS, MAX_TOKENS - 1), frozenset({"seed", "top_k", "top_p"}), seeds=True
)


class FakeEngineClient:
    """Behaves like runner/triton/client.py's EngineClient to its users. One per event loop."""

    def __init__(self, *, step_seconds: float = 0.001, declaration: Declaration = EVERYTHING) -> None:
        self.state = EngineState.READY
        self.declaration: Declaration | None = declaration
        self.statistics = Statistics()
        self.in_flight = 0
        self.output_count = 0
        self.restarts = 0
        self.requests: list[Request] = []
        """All that came, for tests to look at."""
        self._step_seconds = step_seconds
        self._running: dict[int, tuple[Request, Generation, int]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_ready(self) -> None:
        """It is from the beginning."""

    def generate(self, request: Request) -> Generation:
        """As the real one: returns immediately; iterate the result."""
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        number = self._count = self._count + 1
        generation = Generation(lambda: self._drop(number), loop.time())
        if self.state is not EngineState.READY:
            generation.fail(EngineNotReady())
            return generation
        self._running[number] = (request, generation, 0)
        self.in_flight = len(self._running)
        if self._task is None:
            self._task = loop.create_task(self._step())
        return generation

    def die(self, error: CogTritonError | None = None) -> None:
        """Fail all that run, as when Triton or the engine process dies; `state` says so until it is set."""
        self.state = EngineState.RESTARTING
        for _, generation, _ in list(self._running.values()):
            generation.fail(error or TritonUnavailable(reason="the connection was closed"))
        self._running.clear()

    async def close(self) -> None:
        self.die()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _drop(self, number: int) -> None:
        self._running.pop(number, None)
        self.in_flight = len(self._running)

    async def _step(self) -> None:
        """One token for each request, for ever."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._step_seconds, loop.time())
            await asyncio.sleep(due - loop.time())
            for number, (request, generation, sent) in list(self._running.items()):
                if HANG in request.input_token_ids:
                    continue
                if FAIL in request.input_token_ids and sent >= request.max_tokens // 2:
                    reason = "the prompt asked for it"
                    output = Output(number, error=EngineInternalError(reason=reason))
                else:
                    last = sent + 1 >= request.max_tokens
                    finish = FinishReason.LENGTH if last else FinishReason.NOT_FINISHED
                    token = FIRST + sent % COUNT
                    if token in request.end_ids:
                        output = Output(number, (), FinishReason.END_ID)
                    else:
                        output = Output(number, (token,), finish)
                self.output_count += output.error is None
                if generation.take(output, loop.time()):
                    self._drop(number)
                else:
                    self._running[number] = (request, generation, sent + 1)
