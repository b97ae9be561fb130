"""Which signals a process heeds, and from when on; and what is said of one that ended by a signal."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a program to end."""


def heeded(numbers: Iterable[signal.Signals] = ENDS) -> list[signal.Signals]:
    """Those that are not ignored: nohup ignores SIGHUP for what it starts, a script SIGINT for its jobs."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def ends_held() -> Iterator[None]:
    """Keep Ctrl-C and SIGTERM for a program that is still being imported, or takes this one's place within,
    until it calls `take_ends`.

    Python would answer the one with a traceback; the other does nothing to the first process of a container.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_ends() -> None:
    """From now on; also one that has come before."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)


def in_words(status: int) -> str:
    """How a process ended, after "it ended with": `status 1`, `signal SIGKILL`."""
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"  # most of those for real time have no name
