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
        self._running: dict[tuple[str, str], Prediction] = {}
        self._ended: OrderedDict[tuple[str, str], tuple[float, Prediction]] = OrderedDict()

    def find(self, owner: str, prediction_id: str) -> Prediction | None:
        """That owner's prediction of that id: two owners may choose the same one."""
        self._forget_old()
        name = (owner, prediction_id)
        running = self._running.get(name)
        if running is not None:
            return running
        _, ended = self._ended.get(name, (0, None))
        return ended

    def add(self, prediction: Prediction) -> None:
        """Add one that begins."""
        self._running[_name(prediction)] = prediction
        self._ended.pop(_name(prediction), None)

    def ended(self, prediction: Prediction, *, keep: bool) -> None:
        """Note one that has ended; those not kept are forgotten immediately."""
        name = _name(prediction)
        if self._running.get(name) is prediction:
            del self._running[name]
        if keep:
            self._ended[name] = (self._clock() + self._seconds, prediction)
            self._forget_old()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._ended:
            forget_at, _ = next(iter(self._ended.values()))
            if len(self._ended) <= self._most and forget_at > now:
                return
            self._ended.popitem(last=False)


def _name(prediction: Prediction) -> tuple[str, str]:
    return prediction.owner, prediction.id
