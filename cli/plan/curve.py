"""What one runner does at each number of streams, as `cog-triton perf --json` measured it."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.perf.figures import MAX_FAILURES, is_held
from cli.perf.plan import MAX_CONCURRENCY
from shared.errors import MeasurementInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_TOKENS = 10_000_000  # of an answer: far beyond what a model can give


@dataclass(frozen=True)
class Point:
    """One step of a sweep: `streams` at the same time, with times in seconds."""

    streams: int
    between_tokens: float
    """Mean of the requests' means."""
    first_token: tuple[float, ...]
    """p0 to p100."""


@dataclass(frozen=True)
class Curve:
    """A runner, by the number of its streams; more than were measured wait until one has ended."""

    points: tuple[Point, ...]
    output_tokens: int

    @classmethod
    def of(cls, result: Mapping[str, Any], name: str = "-") -> Curve:
        """From the JSON of `cog-triton perf --concurrency 1,8,64 --json`. Raises MeasurementInvalid."""
        try:
            steps = [step for step in result["steps"] if step["concurrency"] is not None]
            answered = [step for step in steps if is_held(step["requests"])]
            if any(step["time_to_first_token"] is None for step in answered):
                reason = "its answers came whole, as with --output_method wait, so no first token was seen"
                raise MeasurementInvalid(measurement=name, reason=reason)
            points = [_point(step) for step in answered]
            tokens = _count(result["asked"]["output_tokens"], _MAX_TOKENS)
            interrupted = bool(result.get("interrupted"))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            reason = "it is not what `cog-triton perf --json` writes"
            raise MeasurementInvalid(measurement=name, reason=reason) from None
        if interrupted:
            reason = "Ctrl-C interrupted it, so that loads are missing or cut short"
            raise MeasurementInvalid(measurement=name, reason=reason)
        if not points:
            reason = (
                "it has no load with a fixed number of streams at which"
                f" {1 - MAX_FAILURES:.0%} of the requests were answered"
            )
            raise MeasurementInvalid(measurement=name, reason=reason)
        return cls(tuple(sorted(points, key=lambda point: point.streams)), tokens)

    @property
    def most_streams(self) -> int:
        """The most that were measured."""
        return self.points[-1].streams

    @property
    def requests_per_second(self) -> float:
        """The most that one runner can do, while all of its places are taken."""
        rates = [
            one.streams / (sum(one.first_token) / len(one.first_token) + self._rest(one.between_tokens))
            for one in self.points
        ]
        return max(rates)

    def between_tokens(self, streams: int) -> float:
        """Seconds from a token to the next one, with that many streams."""
        low, high, share = self._between(streams)
        return low.between_tokens + share * (high.between_tokens - low.between_tokens)

    def first_token(self, streams: int, chance: float) -> float:
        """Seconds to the first token of a request among that many; `chance` from 0 to 1 says which."""
        low, high, share = self._between(streams)
        place = chance * 100
        below = int(place)
        above = min(below + 1, 100)

        def at(point: Point) -> float:
            first = point.first_token[below]
            return first + (place - below) * (point.first_token[above] - first)

        return at(low) + share * (at(high) - at(low))

    def _rest(self, between_tokens: float) -> float:
        return (self.output_tokens - 1) * between_tokens

    def _between(self, streams: int) -> tuple[Point, Point, float]:
        place = bisect_left([point.streams for point in self.points], streams)
        if place == 0:
            return self.points[0], self.points[0], 0.0
        if place == len(self.points):
            return self.points[-1], self.points[-1], 0.0
        low, high = self.points[place - 1], self.points[place]
        return low, high, (streams - low.streams) / (high.streams - low.streams)


def _point(step: Mapping[str, Any]) -> Point:
    first = [_seconds(value) for value in _percentiles(step["time_to_first_token"])]
    if not any(first):
        raise ValueError("no answer takes no time")
    pace = step["inter_token_latency"]
    return Point(
        _count(step["concurrency"], MAX_CONCURRENCY),
        0.0 if pace is None else _seconds(pace["avg"]),
        tuple(first),
    )


def _percentiles(distribution: Mapping[str, Any]) -> Sequence[float]:
    found: Sequence[float] = distribution["percentiles"]
    if len(found) != 101 or not found[-1]:
        raise ValueError("percentiles must be p0 to p100, and nothing comes in no time at all")
    return found


def _count(value: int, most: int) -> int:
    if not (isinstance(value, int) and 1 <= value <= most):
        raise ValueError("it must be a number of things")
    return value


def _seconds(milliseconds: float) -> float:
    if not 0 <= milliseconds < math.inf:
        raise ValueError("it must be a time")
    return milliseconds / 1000
