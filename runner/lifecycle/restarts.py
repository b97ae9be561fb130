"""When something that died is started again, and when no longer."""

from __future__ import annotations

import time

_PAUSES = (0.1, 0.5, 2, 5, 15)
_WITHIN_SECONDS = 300


class Restarts:
    """Counts the deaths of one process."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: how many deaths within five minutes are followed by a restart; None: all are."""
        self._most = most
        self._deaths: list[float] = []

    def pause(self) -> float | None:
        """Note a death; return the seconds until it is started again, None when it died too often."""
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < _WITHIN_SECONDS] + [now]
        if self._most is not None and len(self._deaths) > self._most:
            return None
        return _PAUSES[min(len(self._deaths), len(_PAUSES)) - 1]
