"""The predictions that can be looked up by their id."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.cog.prediction import Prediction


class Store:
    """All running ones, and the most recently ended of those that were sent with `Prefer: respond-async`."""

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        """How many ended ones are kept, and for how long."""
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._running: dict[str, Prediction] = {}
        self._ended: OrderedDict[str, tuple[float, Prediction]] = OrderedDict()

    def find(self, prediction_id: str) -> Prediction | None:
        """The prediction of that id."""
        self._forget_old()
        running = self._running.get(prediction_id)
        if running is not None:
            return running
        _, ended = self._ended.get(prediction_id, (0, None))
        return ended

    def add(self, prediction: Prediction) -> None:
        """Add one that begins."""
        self._running[prediction.id] = prediction
        self._ended.pop(prediction.id, None)

    def ended(self, prediction: Prediction, *, keep: bool) -> None:
        """Note one that has ended; those not kept are forgotten immediately."""
        if self._running.get(prediction.id) is prediction:
            del self._running[prediction.id]
        if keep:
            self._ended[prediction.id] = (self._clock() + self._seconds, prediction)
            self._forget_old()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._ended:
            forget_at, _ = next(iter(self._ended.values()))
            if len(self._ended) <= self._most and forget_at > now:
                return
            self._ended.popitem(last=False)
