"""Slots that senders share: one who takes many leaves enough for the others."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_PARTS = 4


@dataclass(slots=True)
class _Sender:
    held: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Slots:
    """At most `count` at the same time, and at most a quarter of them for one sender.

    With more senders it is less: a part for each, and one for whoever comes next. The next free slot goes to
    the sender who has the fewest. For one event loop.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = count
        self._senders: dict[str, _Sender] = {}

    @asynccontextmanager
    async def slot(self, sender: str) -> AsyncIterator[None]:
        """Wait for one, and hold it."""
        one = self._senders.setdefault(sender, _Sender())
        if self._free and one.held < self._most:
            self._take(one)
        else:
            await self._wait(sender, one)
        try:
            yield
        finally:
            self._give_back(sender, one)

    @property
    def _most(self) -> int:
        """How many one sender may hold."""
        return max(1, self._count // max(_PARTS, len(self._senders) + 1))

    def _take(self, one: _Sender) -> None:
        self._free -= 1
        one.held += 1

    async def _wait(self, sender: str, one: _Sender) -> None:
        turn = asyncio.get_running_loop().create_future()
        one.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given just now
                self._give_back(sender, one)
            else:
                if turn in one.waiting:
                    one.waiting.remove(turn)
                self._forget(sender, one)
            raise

    def _give_back(self, sender: str, one: _Sender) -> None:
        self._free += 1
        one.held -= 1
        self._forget(sender, one)
        while self._free:
            allowed = [each for each in self._senders.values() if each.waiting and each.held < self._most]
            if not allowed:
                break
            next_one = min(allowed, key=lambda each: each.held)
            turn = next_one.waiting.popleft()
            if not turn.done():  # its task has been cancelled, and has yet to notice
                self._take(next_one)
                turn.set_result(None)

    def _forget(self, sender: str, one: _Sender) -> None:
        if not one.held and not one.waiting:
            self._senders.pop(sender, None)
