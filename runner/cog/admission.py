"""How many predictions are let in, and how they are let out when the runner shuts down."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from runner.cog.cancellation import Cancellation
from shared.errors import Overloaded, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Iterator


class Admission:
    """A limit on the predictions that run or wait in the engine, which works on them in order of arrival.

    Cog has more slots than this, so that a prediction beyond the limit gets a code instead of Cog's bare 409.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: set[Cancellation] = set()
        self._change = threading.Condition()
        self._closed = False

    @property
    def count(self) -> int:
        """How many are inside."""
        return len(self._inside)

    @property
    def closed(self) -> bool:
        """Whether `drain` has begun."""
        return self._closed

    @contextmanager
    def enter(self) -> Iterator[Cancellation]:
        """Be one of those inside; what it gives is cancelled when the runner can wait no longer.

        Raises E2106 when there are as many as may be, E2108 once `drain` has begun.
        """
        ticket = Cancellation()
        with self._change:
            if self._closed:
                raise ShuttingDown
            if len(self._inside) >= self._limit:
                raise Overloaded(limit=self._limit)
            self._inside.add(ticket)
        try:
            yield ticket
        finally:
            with self._change:
                self._inside.remove(ticket)
                self._change.notify_all()

    def drain(self, grace: float) -> None:
        """Let nobody in, wait up to `grace` seconds until all are out, and cancel the rest."""
        with self._change:
            self._closed = True
            self._change.wait_for(lambda: not self._inside, grace)
            late = list(self._inside)
        for ticket in late:
            ticket.cancel()
