"""Whether a client is still there while its connection is not read: it has ended its side, or sent too much.

The end of sending looks the same whether a client waits for its answer, or has closed and gone. Only what is
sent to it makes a difference: the machine of one that has gone answers with a reset.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_FIRST_WAIT = 0.01
_LONGEST_WAIT = 10.0


class Presence:
    """Watches one socket: calls `probe`, which is to send something, and `leave` once the client has gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        probe: Callable[[], object],
        leave: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._poll = select.poll()
        self._poll.register(descriptor, 0)  # errors are always reported
        self._probe = probe
        self._leave = leave
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Probe now, look soon, and then less and less often."""
        if self._timer is None:
            self._look(_FIRST_WAIT)

    def stop(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, wait: float) -> None:
        if self._poll.poll(0):
            self.stop()
            self._leave()
            return
        self._timer = self._loop.call_later(wait, self._look, min(4 * wait, _LONGEST_WAIT))
        self._probe()
