"""Shared memory, through which the processes of an engine on several GPUs exchange tokens."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from shared.sizes import readable

from .check import Check, Finding, ok, warning
from .gpu import on_the_bus

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLACE = "/dev/shm"  # noqa: S108  where NCCL keeps its segments
_WANTED = 1_000_000_000  # bytes; enough for eight GPUs
_LOCKED = 64 << 20  # bytes; for eight GPUs


def _look() -> Iterator[Finding]:
    try:
        found = os.statvfs(_PLACE)
        free = found.f_bavail * found.f_frsize
    except FileNotFoundError:
        free = 0
    if on_the_bus() < 2:
        yield ok(f"{_PLACE} has {readable(free)} free, and with fewer than two GPUs nothing needs it")
        return
    if free < _WANTED:
        yield warning(
            f"{_PLACE} has {readable(free)} free: an engine on several GPUs may need more.",
            "Start the container with --shm-size=1g.",
        )
    else:
        yield ok(f"{_PLACE} has {readable(free)} free")
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if locked != resource.RLIM_INFINITY and locked < _LOCKED:
        yield warning(
            f"Only {readable(locked)} may be locked in memory: an engine on several GPUs may need more.",
            "Start the container with --ulimit memlock=-1.",
        )


CHECK = Check("shared_memory", "Shared and locked memory, for engines on several GPUs", _look)
