"""Hands freed memory back to the machine.

glibc keeps what lies below memory that is still in use. After some hundred large bodies that were 330 MB.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 2.0
_MAX_SECONDS = 10.0
_WORTHWHILE = 8 << 20  # bytes; to hand back 300 MB takes up to 70 ms
_STATE = Path("/proc/self/statm")


async def keep_handing_back(seconds: float = _SECONDS) -> None:
    """Trim the heap while this process is larger than it was, less often when little comes of it.

    Runs until it is cancelled.
    """
    trim = _trim()
    if trim is None:
        return
    least, pause = resident(), seconds
    while True:
        await asyncio.sleep(pause)
        before = resident()
        if before <= least + _WORTHWHILE:
            least, pause = min(before, least), seconds
            continue
        trim(0)
        gained = before - resident() >= _WORTHWHILE
        pause = seconds if gained else min(2 * pause, _MAX_SECONDS)


def resident() -> int:
    """The bytes that this process has in memory."""
    return int(_STATE.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _trim() -> Callable[[int], object] | None:
    """The function of glibc; None with another C library."""
    import ctypes

    found: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
