"""The requests of a burst begin a few at a time, so that the tokens of earlier ones are not delayed."""

from __future__ import annotations

import asyncio
from collections import deque

_IN_ONE_PASS = 4


class Turns:
    """Lets some of them proceed in one pass of the event loop, in order of arrival. For one event loop."""

    def __init__(self, in_one_pass: int = _IN_ONE_PASS) -> None:
        self._in_one_pass = in_one_pass
        self._left = in_one_pass
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def take(self) -> None:
        """Wait for one's turn: not at all, unless others came in the same pass."""
        loop = asyncio.get_running_loop()
        if not self._counting:
            self._counting = True
            loop.call_soon(self._next_pass, loop)
        if self._left > 0:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next_pass(self, loop: asyncio.AbstractEventLoop) -> None:
        self._left = self._in_one_pass
        while self._waiting and self._left > 0:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        self._counting = bool(self._waiting)
        if self._counting:
            loop.call_soon(self._next_pass, loop)
