"""Cancel for predictions that stream: the one place that knows how Cog runs ours.

Cog 0.23 streams live only when an `async def run` returns a plain generator. By then the future that Cog
would cancel is done, so a cancel, or a client that left, changes nothing and the generator continues. Cog
submits the coroutine through `asyncio.run_coroutine_threadsafe` and later calls `cancel()` on what that
returned; `install` puts a future there that also tells the prediction.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Coroutine


class Cancellation:
    """Whether a prediction was cancelled, and who must be told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callback: Callable[[], object] | None = None
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """True from the first `cancel` on."""
        return self._cancelled

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once on cancel, from any thread; immediately if it has already happened."""
        with self._lock:
            self._callback = callback
            if not self._cancelled:
                return
        callback()

    def cancel(self) -> None:
        """Cancel the prediction; a second call does nothing."""
        with self._lock:
            if self._cancelled:
                return
            self._cancelled = True
            callback = self._callback
        if callback is not None:
            callback()


class _TellingFuture:
    """A future whose `cancel` also reaches the generator that the coroutine has returned."""

    def __init__(self, future: concurrent.futures.Future[Any], cancellation: Cancellation) -> None:
        self._future = future
        self._cancellation = cancellation

    def cancel(self) -> bool:
        self._cancellation.cancel()
        return self._future.cancel()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._future, name)


_current: contextvars.ContextVar[Cancellation] = contextvars.ContextVar("cancellation")


def current_cancellation() -> Cancellation:
    """The cancellation of the prediction whose `run` is being called; outside Cog, one that never fires."""
    return _current.get(Cancellation())


def install() -> None:
    """Make Cog's cancel reach predictions. Call it once, during set-up."""
    submit = asyncio.run_coroutine_threadsafe

    def run_coroutine_threadsafe(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
        cancellation = Cancellation()
        # The task starts in a copy of this context: that is how `run` finds its own cancellation.
        token = _current.set(cancellation)
        try:
            return _TellingFuture(submit(coroutine, loop), cancellation)
        finally:
            _current.reset(token)

    asyncio.run_coroutine_threadsafe = run_coroutine_threadsafe  # type: ignore[assignment] # acts as a future
