"""How many predictions are let in, and how they are let out when the runner shuts down."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from shared.errors import Overloaded, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Callable


class Ticket:
    """One who is inside. `on_late` is called when the runner can wait no longer."""

    __slots__ = ("_admission", "on_late")

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.on_late: Callable[[], object] = lambda: None

    def leave(self) -> None:
        """Go out. May be called twice."""
        self._admission.left(self)


class Admission:
    """A limit on the predictions that run or wait in the engine, which works on them in order of arrival.

    For one event loop.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.closed = False
        """Whether `drain` has begun."""
        self._inside: set[Ticket] = set()
        self._empty = asyncio.Event()

    @property
    def count(self) -> int:
        """How many are inside."""
        return len(self._inside)

    def enter(self) -> Ticket:
        """Be one of those inside, until `leave`.

        Raises E2106 when there are as many as may be, E2108 once `drain` has begun.
        """
        if self.closed:
            raise ShuttingDown
        if len(self._inside) >= self.limit:
            raise Overloaded(limit=self.limit)
        ticket = Ticket(self)
        self._inside.add(ticket)
        return ticket

    def left(self, ticket: Ticket) -> None:
        """For `Ticket.leave`."""
        self._inside.discard(ticket)
        if self.closed and not self._inside:
            self._empty.set()

    async def drain(self, grace: float) -> None:
        """Let nobody in, wait up to `grace` seconds until all are out, and tell the rest."""
        self.closed = True
        if self._inside:
            try:
                await asyncio.wait_for(self._empty.wait(), grace)
            except TimeoutError:
                for ticket in list(self._inside):
                    ticket.on_late()
