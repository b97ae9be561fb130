"""The predictions that can be looked up by their id."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.cog.prediction import Prediction

_MOST_BYTES = 64 << 20


class _Ended(NamedTuple):
    prediction: Prediction
    forget_at: float
    size: int


class Store:
    """All running ones, and the most recently ended of those that were sent with `Prefer: respond-async`.

    Those that have ended are forgotten early when their texts need more than 64 MiB: a client can send inputs
    of 16 MiB.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        """How many ended ones are kept, and for how long."""
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._running: dict[tuple[str, str], Prediction] = {}
        self._ended: OrderedDict[tuple[str, str], _Ended] = OrderedDict()
        self._size = 0

    def find(self, owner: str, prediction_id: str) -> Prediction | None:
        """That owner's prediction of that id: two owners may choose the same one."""
        self._forget_old()
        name = (owner, prediction_id)
        running = self._running.get(name)
        if running is not None:
            return running
        ended = self._ended.get(name)
        return None if ended is None else ended.prediction

    def add(self, prediction: Prediction) -> None:
        """Add one that begins."""
        self._running[_name(prediction)] = prediction
        self._forget(_name(prediction))

    def ended(self, prediction: Prediction, *, keep: bool) -> None:
        """Note one that has ended; those not kept are forgotten immediately."""
        name = _name(prediction)
        if self._running.get(name) is prediction:
            del self._running[name]
        if keep:
            self._forget(name)
            ended = _Ended(prediction, self._clock() + self._seconds, prediction.size())
            self._ended[name] = ended
            self._size += ended.size
            self._forget_old()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._ended:
            name, oldest = next(iter(self._ended.items()))
            fits = len(self._ended) <= self._most and self._size <= _MOST_BYTES
            if fits and oldest.forget_at > now:
                return
            self._forget(name)

    def _forget(self, name: tuple[str, str]) -> None:
        ended = self._ended.pop(name, None)
        if ended is not None:
            self._size -= ended.size


def _name(prediction: Prediction) -> tuple[str, str]:
    return prediction.owner, prediction.id
