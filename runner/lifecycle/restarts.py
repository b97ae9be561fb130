"""When something that died is started again, and how often that was."""

from __future__ import annotations

import time

_PAUSES = (0.1, 0.5, 2, 5, 15)
_WITHIN_SECONDS = 300


class Restarts:
    """Counts the deaths of one process."""

    def __init__(self) -> None:
        """None so far."""
        self.total = 0
        """All deaths."""
        self._recent: list[float] = []

    @property
    def recent(self) -> int:
        """The deaths within the five minutes before the last one."""
        return len(self._recent)

    def pause(self) -> float:
        """Note a death; return the seconds until the process is started again, at most 15."""
        now = time.monotonic()
        self.total += 1
        self._recent = [death for death in self._recent if now - death < _WITHIN_SECONDS] + [now]
        return _PAUSES[min(self.recent, len(_PAUSES)) - 1]
