"""What comes back for one request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from runner.protocol.engine import FinishReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from runner.protocol.engine import Output
    from shared.errors import CogTritonError


class Generation:
    """An asynchronous iterator of outputs: each time all that are waiting, in order; one task reads it.

    Iterating raises the coded error with which the request ended, after the outputs before it, once.
    `finish_reason` is set at the end. After `cancel` the iteration just ends.
    """

    __slots__ = ("_cancel", "_ended", "_error", "_outputs", "_waiter", "finish_reason", "last_output_at")

    def __init__(self, cancel: Callable[[], None], now: float) -> None:
        """`cancel` tells the engine; it is called at most once. `now`: the time of the event loop."""
        self._cancel = cancel
        self._outputs: list[Output] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._error: CogTritonError | None = None
        self.finish_reason = FinishReason.NOT_FINISHED
        self.last_output_at = now
        """When something last arrived, or the request was sent."""

    @classmethod
    def of_no_tokens(cls, now: float) -> Self:
        """One that has ended because no tokens were wanted."""
        generation = cls(lambda: None, now)
        generation._end(FinishReason.LENGTH)
        return generation

    @property
    def ended(self) -> bool:
        """Whether nothing more will come; outputs may still wait to be read."""
        return self._ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Output]:
        if not self._outputs and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._outputs:
            outputs, self._outputs = self._outputs, []
            return outputs
        if self._error is not None:
            # Several generations may end with the same error. Its traceback refers to this frame: if the
            # frame referred to it, only a collection would free them.
            error, self._error = self._error.with_traceback(None), None
            try:
                raise error
            finally:
                del error
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Stop the engine's work on this request; waiting outputs can still be read. May be called twice."""
        if not self._ended:
            self._end(FinishReason.CANCELLED)
            self._cancel()

    def take(self, output: Output, now: float) -> bool:
        """Take an output that has arrived; return whether it was the last. For the client."""
        self.last_output_at = now
        if output.error is not None:
            self.fail(output.error)
            return True
        if output.tokens or output.cached_tokens is not None:
            self._outputs.append(output)
        if output.finish_reason is not FinishReason.NOT_FINISHED:
            self._end(output.finish_reason)
            return True
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        return False

    def fail(self, error: CogTritonError) -> None:
        """End with an error. For the client."""
        if not self._ended:
            self._error = error
            self._end(FinishReason.NOT_FINISHED)

    def _end(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
