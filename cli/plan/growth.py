"""How fast a fleet may grow: an autoscaler adds runners, each of which needs time to start.

Load and capacity are rates here; single requests do not matter. The autoscaler is that of deploy/kubernetes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import simpy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

LOOKS_EVERY = 15.0
"""Seconds: HorizontalPodAutoscaler's own."""
_MAX_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Start:
    """What a runner does before it is ready, in seconds."""

    pull: float = 0.0
    """The image, onto a node without it."""
    weights: float = 0.0
    """The engine, into an empty cache."""
    load: float = 0.0
    """The engine, from the cache into the GPU, until the first token."""

    @property
    def cold(self) -> float:
        """On a node that has nothing."""
        return self.pull + self.weights + self.load

    @property
    def cached(self) -> float:
        """On a node with the image, and a volume with the engine."""
        return self.load


@dataclass(frozen=True)
class Pace:
    """scaleUp of overlays/autoscaling: within `period` seconds by `share` or `runners`, whichever is more."""

    share: float = 0.5
    runners: int = 2
    period: float = 120.0
    window: float = 60.0
    """For how long more runners must be wanted before any are added."""
    reserve: float = 0.25
    """Runners that are kept in reserve, as a share of those that the load needs."""


@dataclass(frozen=True)
class Short:
    """How long there were too few runners, and how many requests arrived without a place."""

    seconds: float
    requests: float


def grow(
    load: Callable[[float], float],
    until: float,
    *,
    before: float,
    runner_rate: float,
    start_seconds: float,
    pace: Pace,
) -> Short:
    """`load`: requests a second at a time (s); `before`: those until then, for a long time.

    `runner_rate`: what a runner can serve within the objectives.
    """
    clock = simpy.Environment()
    ready = ordered = _needed(before * (1 + pace.reserve), runner_rate)
    added: list[tuple[float, int]] = []  # within the period
    wanted_since: float | None = None
    seconds = requests = 0.0

    def begin(number: int) -> Generator[simpy.Event, None, None]:
        nonlocal ready
        yield clock.timeout(start_seconds)
        ready += number

    def autoscaler() -> Generator[simpy.Event, None, None]:
        nonlocal ordered, wanted_since
        while True:
            now = clock.now
            wanted = _needed(load(now) * (1 + pace.reserve), runner_rate)
            if wanted <= ordered:
                wanted_since = None
            else:
                wanted_since = now if wanted_since is None else wanted_since
                if now - wanted_since >= pace.window:
                    recent = sum(number for when, number in added if now - when < pace.period)
                    allowed = max(math.floor((ordered - recent) * pace.share), pace.runners) - recent
                    if (number := min(wanted - ordered, allowed)) > 0:
                        ordered += number
                        added.append((now, number))
                        clock.process(begin(number))
            yield clock.timeout(LOOKS_EVERY)

    def judge() -> Generator[simpy.Event, None, None]:
        nonlocal seconds, requests
        while True:
            over = load(clock.now) - ready * runner_rate
            if over > 1e-9:
                seconds += 1
                requests += over
            yield clock.timeout(1)

    clock.process(autoscaler())
    clock.process(judge())
    clock.run(until=until)
    return Short(seconds, requests)


def fastest_doubling(*, rate: float, runner_rate: float, start_seconds: float, pace: Pace) -> float | None:
    """The fewest minutes in which a load may double, evenly, without too few runners; None: not in a day."""
    for minutes in (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 480, 720, 1440):
        seconds = minutes * 60.0
        if _rise(rate, 2 * rate, seconds, runner_rate, start_seconds, pace).seconds == 0:
            return float(minutes)
    return None


def after_a_jump(*, rate: float, by: float, runner_rate: float, start_seconds: float, pace: Pace) -> Short:
    """A load that is `by` times as high from one second to the next."""
    return _rise(rate, by * rate, 0.0, runner_rate, start_seconds, pace)


def _rise(
    low: float,
    high: float,
    seconds: float,
    runner_rate: float,
    start_seconds: float,
    pace: Pace,
) -> Short:
    def load(now: float) -> float:
        return high if now >= seconds else low + (high - low) * now / seconds

    doublings = math.log(max(high / low, 1)) / math.log1p(pace.share) + 2
    until = min(seconds + start_seconds + pace.window + (doublings + 1) * pace.period, _MAX_SECONDS * 2)
    return grow(
        load,
        until,
        before=low,
        runner_rate=runner_rate,
        start_seconds=start_seconds,
        pace=pace,
    )


def _needed(rate: float, runner_rate: float) -> int:
    return math.ceil(rate / runner_rate - 1e-9)
