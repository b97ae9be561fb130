"""Work that waits for its turn, shared fairly among those who send it. For one event loop."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


_PATIENCE = 64


class Full(Exception):
    """There is no room for more."""

    def __init__(self, limit: int, *, in_bytes: bool) -> None:
        super().__init__(limit)
        self.limit = limit
        self.in_bytes = in_bytes
        """Whether it is the sender's share of bytes that is taken."""


class Shares:
    """Room, in bytes, for what several senders have in progress.

    A sender may have at most as much as it leaves free, so that no one can fill it up alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken = 0
        self._of: defaultdict[str, int] = defaultdict(int)

    def take(self, sender: str, size: int) -> None:
        """Raises Full."""
        if self._of.get(sender, 0) + size > self.limit - self._taken - size:
            raise Full(self.limit, in_bytes=True)
        self._taken += size
        self._of[sender] += size

    def give_back(self, sender: str, size: int) -> None:
        """Free what was taken."""
        self._taken -= size
        self._of[sender] -= size
        if not self._of[sender]:
            del self._of[sender]


class _Item(NamedTuple):
    order: int
    number: int
    size: int
    cost: int
    turn: asyncio.Future[None]


class FairQueue:
    """Lets work begin while its costs together are at most `at_once`, or while there is no other.

    The sender of whose work least was done comes next. Of one sender's work, the smaller comes first, until
    so many times its own size was done while the larger waited: a short text does not wait behind many long
    ones, and those do not wait for ever.
    """

    def __init__(self, at_once: int, *, most: int, room: int) -> None:
        """`most`, `room`: how many may be in it, and how many bytes."""
        self.most = most
        self.shares = Shares(room)
        self._at_once = at_once
        self._inside = 0
        self._count = 0
        self._done = 0
        """The size of all that began."""
        self._numbers = itertools.count()
        self._waiting: dict[str, list[_Item]] = {}
        self._served: dict[str, int] = {}
        """Of those who wait: how much of their work began, counted from what the others had."""
        self._now = 0
        """What the last one to begin had."""

    async def enter(self, sender: str, size: int, cost: int | None = None) -> Callable[[], None]:
        """Wait for a turn; return what ends it. `cost`: the size, unless it is given. Raises Full."""
        if self._count >= self.most:
            raise Full(self.most, in_bytes=False)
        self.shares.take(sender, size)
        self._count += 1
        cost = size if cost is None else cost
        try:
            if self._waiting or not self._fits(cost):
                await self._wait(sender, size, cost)
            else:
                self._begin(size, cost)
        except BaseException:
            self._forget(sender, size)
            raise
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._inside -= cost
                self._forget(sender, size)
                self._next()

        return end

    def close(self, error: Callable[[], BaseException]) -> None:
        """Those who wait get an error."""
        for items in self._waiting.values():
            for item in items:
                if not item.turn.done():
                    item.turn.set_exception(error())
        self._waiting.clear()
        self._served.clear()

    def _fits(self, cost: int) -> bool:
        return not self._inside or self._inside + cost <= self._at_once

    def _begin(self, size: int, cost: int) -> None:
        self._inside += cost
        self._done += size

    def _forget(self, sender: str, size: int) -> None:
        self._count -= 1
        self.shares.give_back(sender, size)

    async def _wait(self, sender: str, size: int, cost: int) -> None:
        item = _Item(
            self._done + _PATIENCE * size,
            next(self._numbers),
            size,
            cost,
            asyncio.get_running_loop().create_future(),
        )
        heappush(self._waiting.setdefault(sender, []), item)
        self._served.setdefault(sender, self._now)
        try:
            await item.turn
        except asyncio.CancelledError:
            if item.turn.done() and not item.turn.cancelled() and item.turn.exception() is None:
                self._inside -= cost  # it had its turn just now
            self._next()  # it may have been in the way
            raise

    def _next(self) -> None:
        while self._waiting:
            sender = min(self._waiting, key=self._served.__getitem__)
            items = self._waiting[sender]
            while items and items[0].turn.done():
                heappop(items)  # it was cancelled
            if items and not self._fits(items[0].cost):
                return
            if items:
                item = heappop(items)
                self._now = self._served[sender]
                self._served[sender] += item.size
                self._begin(item.size, item.cost)
                item.turn.set_result(None)
            if not items:
                del self._waiting[sender], self._served[sender]
