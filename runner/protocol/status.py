"""The status page: what the bridge tells the runner of the engine, and the runner the bridge of its pace.

docs/architecture.md holds the layout; the bridge is compiled against the numbers below.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

from runner.protocol.engine import Statistics
from runner.protocol.feed import EngineState

if TYPE_CHECKING:
    from pathlib import Path

SIZE = 8192
MAGIC = 0x31425443
MAGIC_AT = 0
ENGINE_STATE = 4
ENGINE_PID = 8
RESTARTS = 12
IN_FLIGHT = 16
STATISTICS = 64
STATISTICS_COUNT = 8
SLOTS = 4096
SLOT_COUNT = 1024
CANCELLED = 0xFFFFFFFF  # in a slot, instead of a count


class StatusPage:
    """The page of one bridge, as the runner sees it. Threads may share it; a slot belongs to one of them."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        # Whole words: a byte-wise write could be seen half done.
        self._words = memoryview(mapped).cast("I")
        self._free_slots = list(range(SLOT_COUNT))

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the file, empty, and map it. Raises OSError."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, SIZE)
            return cls(mmap.mmap(descriptor, SIZE))
        finally:
            os.close(descriptor)

    @property
    def engine_state(self) -> EngineState:
        """STARTING also before a bridge has found the page."""
        return EngineState(self._words[ENGINE_STATE // 4])

    @property
    def engine_pid(self) -> int | None:
        """The process id of the engine process, None while there is none."""
        return self._words[ENGINE_PID // 4] or None

    @property
    def restarts(self) -> int:
        """How often the engine process was started again since Triton started."""
        return self._words[RESTARTS // 4]

    @property
    def in_flight(self) -> int:
        """How many requests the engine works on."""
        return self._words[IN_FLIGHT // 4]

    @property
    def statistics(self) -> Statistics:
        """What the engine is busy with, where it tells; else all 0."""
        first = STATISTICS // 4
        return Statistics(*self._words[first : first + len(fields(Statistics))])

    def acquire_slot(self) -> Slot | None:
        """A slot for one request, counted from 0; None while all are taken: then run without."""
        try:
            slot = Slot(self, self._free_slots.pop())
        except IndexError:
            return None
        self._words[SLOTS // 4 + slot.index] = 0
        return slot

    def close(self) -> None:
        """Unmap the page; it must not be used any more."""
        self._words.release()
        self._mapped.close()


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the runner counts the responses of one request that it has consumed."""

    page: StatusPage
    index: int
    """The value of the request's parameter `consumer_slot`."""

    def consumed(self, responses: int) -> None:
        """Say how many responses of the request have been consumed so far."""
        self.page._words[SLOTS // 4 + self.index] = responses  # noqa: SLF001 # one thing in two classes

    def cancel(self) -> None:
        """Have the bridge end the request, within 10 ms, as if it were complete."""
        self.consumed(CANCELLED)

    def release(self) -> None:
        """Give the slot back, when the request is over."""
        self.page._free_slots.append(self.index)  # noqa: SLF001 # one thing in two classes
