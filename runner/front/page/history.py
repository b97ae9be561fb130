"""What the runner was doing in the last minutes."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.protocol.engine import Statistics
from shared.errors import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.metrics import Metrics
    from runner.prediction.admission import Admission
    from runner.triton.client import EngineClient

SECONDS = 2
"""Between two samples."""
_KEPT = 150


class _Sample(NamedTuple):
    tokens_per_second: float
    running: int
    queued: int
    kv_cache: float | None  # the share of its blocks in use; None: the engine does not report it


class _Failures(NamedTuple):
    at: float
    counts: Counter[str]  # by code


class History:
    """Five minutes of samples, the newest last; `take` one every SECONDS."""

    def __init__(
        self, metrics: Metrics, admission: Admission, engine: Callable[[], EngineClient | None], now: float
    ) -> None:
        """`now`: seconds of any clock, as in the other methods."""
        self._metrics = metrics
        self._admission = admission
        self._engine = engine
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._failures: deque[_Failures] = deque(maxlen=_KEPT)
        self._at = now
        self._tokens = metrics.tokens
        self._errors = metrics.errors()

    def take(self, now: float) -> None:
        """Record the current state."""
        client = self._engine()
        statistics = Statistics() if client is None else client.statistics
        blocks = statistics.kv_cache_blocks
        tokens, errors = self._metrics.tokens, self._metrics.errors()
        self._samples.append(
            _Sample(
                (tokens - self._tokens) / max(now - self._at, 1e-3),
                self._admission.count,
                statistics.queued_requests,
                statistics.kv_cache_blocks_used / blocks if blocks else None,
            )
        )
        if failed := errors - self._errors:
            self._failures.append(_Failures(now, failed))
        self._at, self._tokens, self._errors = now, tokens, errors

    def view(self, now: float) -> dict[str, Any]:
        """Each number as a list over time, and the errors, most recent first."""
        counts: Counter[str] = Counter()
        last: dict[str, float] = {}
        for failures in self._failures:
            if failures.at > now - SECONDS * _KEPT:
                counts += failures.counts
                last |= dict.fromkeys(failures.counts, failures.at)
        columns = zip(*self._samples, strict=True) if self._samples else ([] for _ in _Sample._fields)
        return {
            **dict(zip(_Sample._fields, map(list, columns), strict=True)),
            "seconds": SECONDS,
            "kept": _KEPT,
            "errors": [
                {
                    "code": code,
                    "name": REGISTRY[code].name(),
                    "count": counts[code],
                    "seconds_ago": round(now - at),
                }
                for code, at in sorted(last.items(), key=lambda item: (-item[1], item[0]))
            ],
        }
