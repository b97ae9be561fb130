"""All events of a prediction from the first on, as they arise, for those who come later."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from runner.front.cog.prediction import log_event, output_event

if TYPE_CHECKING:
    from runner.front.cog.prediction import Prediction


_MOST_EVENTS = 512
"""Made at once: what waits for a client that reads slowly is held in memory."""


class Replay:
    """An asynchronous iterator of bytes; `close` it."""

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction
        self._changed = asyncio.Event()
        self._sent = 0
        self._heard = 0
        self._began = False
        self._ended = False
        prediction.on_change.append(self._wake)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        prediction = self._prediction
        while not self._ended:
            self._changed.clear()
            if not self._began and prediction.status != "starting":
                self._began = True
                return prediction.beginning()
            if self._heard < prediction.log_length:
                unheard = prediction.log_length - self._heard
                self._heard = prediction.log_length
                return log_event(prediction.logs[-unheard:])
            if self._sent < len(prediction.output):
                new = range(self._sent, min(self._sent + _MOST_EVENTS, len(prediction.output)))
                self._sent = new.stop
                return b"".join(output_event(index, prediction.output[index]) for index in new)
            if prediction.ended:
                self._ended = True
                return prediction.ending()
            await self._changed.wait()
        raise StopAsyncIteration

    def stop(self) -> None:
        """End the iteration."""
        self._ended = True
        self._changed.set()

    def close(self) -> None:
        """Stop following the prediction."""
        self._prediction.on_change.remove(self._wake)

    def _wake(self, _: str) -> None:
        self._changed.set()
