"""Whether the engine generates: a process that exists, and says so, may still hang."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shared.errors import CogTritonError, EngineGaveUp, EngineInternalError, EngineProcessDied, FixedBy
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = get_logger()

_INTERVAL_SECONDS = 1.0
_MAX_FAILURES = 10  # within some five seconds: each is a traceback in the log
_MAX_DEATHS = 5


class EngineProbe:
    """Checks once a second whether tokens have come; asks for one if none have."""

    def __init__(self, ask: Callable[[], Awaitable[object]], token_count: Callable[[], int]) -> None:
        """`ask` gets a token or raises a coded error; `token_count` changes whenever tokens come."""
        self._ask = ask
        self._token_count = token_count
        self.is_alive = False
        """Whether the last check found tokens; False before the first."""

    async def first(self, retry_seconds: float = 0.02) -> None:
        """Ask until a token comes, however long the engine loads.

        Raises EngineGaveUp when the engine's process dies of one request after the other,
        EngineInternalError when it fails on each, and what is wrong with the request itself, which would
        stay wrong.
        """
        failures = deaths = 0
        while (problem := await self._problem()) is not None:
            failures = failures + 1 if isinstance(problem, EngineInternalError) else 0
            deaths += isinstance(problem, EngineProcessDied)
            if deaths > _MAX_DEATHS:
                raise EngineGaveUp from problem
            given_up = isinstance(problem, EngineGaveUp) or problem.fixed_by is FixedBy.USER
            if given_up or failures == _MAX_FAILURES:
                raise problem
            await asyncio.sleep(min(retry_seconds * 2**failures, _INTERVAL_SECONDS))
        self.is_alive = True

    async def watch(self) -> None:
        """Check until cancelled."""
        seen = self._token_count()
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            before, seen = seen, self._token_count()
            problem = None if seen != before else await self._problem()
            if problem and self.is_alive:
                log.error("the engine is not generating tokens", error=str(problem))
            self.is_alive = problem is None

    async def _problem(self) -> CogTritonError | None:
        try:
            await self._ask()
        except CogTritonError as error:
            return error
        return None
