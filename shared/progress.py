"""How far along a long step is: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol, TextIO

from shared.log_pipe import stderr_is_terminal
from shared.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_QUIET_SECONDS = 2.0


class StepProgress(Protocol):
    """Where a running step reports how far along it is."""

    def __call__(self, done: int, total: int | None = None) -> None:
        """`done` of `total` are done, counted from the start of the step; None is "not known (yet)"."""


class Progress(Protocol):
    """Shows the steps of a job, one after another. The steps count bytes."""

    def step(self, name: str) -> AbstractContextManager[StepProgress]:
        """Show a step for as long as the context lasts."""


class SilentProgress:
    """Shows nothing."""

    def step(self, name: str) -> AbstractContextManager[StepProgress]:  # noqa: ARG002 - the protocol's
        return nullcontext(_ignore)


class PlainProgress:
    """A line every two seconds at most, and none for a step that is over before that."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock

    @contextmanager
    def step(self, name: str) -> Iterator[StepProgress]:
        last = started = self._clock()

        def show(done: int, total: int | None = None) -> None:
            nonlocal last
            now = self._clock()
            if now - last >= _QUIET_SECONDS:
                last = now
                print(f"{name}: {_share(done, total)}", file=self._stream, flush=True)

        yield show
        if last != started:
            print(f"{name}: done in {self._clock() - started:.0f} s", file=self._stream, flush=True)


def stderr_progress() -> Progress:
    """Bars where stderr is a terminal, plain lines elsewhere."""
    if not stderr_is_terminal():
        return PlainProgress(sys.stderr)
    # Late: rich takes long to import.
    from rich.console import Console

    from shared.progress_bar import BarProgress

    return BarProgress(Console(stderr=True, force_terminal=True))


def _ignore(done: int, total: int | None = None) -> None:
    """Take a `StepProgress` call and show nothing."""


def _share(done: int, total: int | None) -> str:
    if not total:
        return readable(done)
    return f"{100 * done / total:.0f}% of {readable(total)}"
