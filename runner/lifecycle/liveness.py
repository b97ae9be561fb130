"""Whether a server makes progress. Busy is not dead: one that answers late still makes some.

The rule: a server whose count of turns has not changed for `HUNG_SECONDS` hangs, whatever CPU time it takes.
Nothing shorter ends one. Time in which this process did not run either does not count.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from runner.lifecycle.processes import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

HUNG_SECONDS = 30.0
_LOOK_SECONDS = 1.0
_PAUSED_SECONDS = 3.0  # between two looks: the machine was suspended, or the container paused


class Stall:
    """How long a count of turns has stayed the same, by the looks that were taken at it."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: the limit."""
        self._limit = seconds
        self._turns: int | None = None
        self._looked = self._began = self._cpu_began = 0.0

    def look(self, turns: int, now: float, cpu: float) -> str | None:
        """Take a look; return in words how the server hangs, or None.

        `now` is CLOCK_MONOTONIC, which nobody sets; `cpu` is the CPU time that the server has used.
        """
        paused = now - self._looked > _PAUSED_SECONDS
        self._looked = now
        if turns != self._turns or paused:
            self._turns, self._began, self._cpu_began = turns, now, cpu
        if now - self._began < self._limit:
            return None
        return f"has made no progress for {self._limit:g} s, with {cpu - self._cpu_began:.1f} s of CPU time"


async def wait_until_hung(pid: int, turns: Callable[[], int], seconds: float = HUNG_SECONDS) -> str:
    """Wait until process `pid` hangs by the rule; return how, in words."""
    clock = asyncio.get_running_loop().time
    stall = Stall(seconds)
    while True:
        hung = stall.look(turns(), clock(), cpu_seconds(pid))
        if hung is not None:
            return hung
        await asyncio.sleep(_LOOK_SECONDS)
