"""Waiting for what other threads and processes do."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def wait_for(condition: Callable[[], T], seconds: float = 60) -> T:
    """Wait until `condition()` is true, and return what it gave."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return result


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """The same in an event loop, which keeps running meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.01)
