"""Memory that a process shares with its supervisor: it counts the turns of its event loop there."""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

_BYTES = 8
_BEAT_SECONDS = 0.25


class Heartbeat:
    """The count, as one of the two processes sees it."""

    def __init__(self, fd: int) -> None:
        """`fd`: the file that `create` made, inherited by the process that counts."""
        self._count = memoryview(mmap.mmap(fd, _BYTES)).cast("Q")

    @staticmethod
    def create() -> int:
        """Make the memory; return its file, which has no name and never fills a disk."""
        fd = os.memfd_create("heartbeat")
        os.truncate(fd, _BYTES)
        return fd

    @property
    def count(self) -> int:
        """The turns so far. Not all are counted: four a second show that the loop turns."""
        return self._count[0]

    def beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count a turn of `loop` now, and then four times a second for as long as it turns."""
        self._count[0] += 1
        loop.call_later(_BEAT_SECONDS, self.beat, loop)
