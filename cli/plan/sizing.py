"""The fewest runners that meet the objectives under a load."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from cli.perf.plan import Step
from cli.plan.fleet import simulate

if TYPE_CHECKING:
    from cli.perf.plan import Objectives
    from cli.plan.curve import Curve
    from cli.plan.fleet import Answered, Balance

GROUP = 16
"""Larger fleets are calculated as groups of this size, each with a share of the load: a few too many."""
_REQUESTS = 3_000  # of a simulation, at least, after the time of several answers
_LIFETIMES = 2
_PRECISION = 0.03
_MAX_UTILIZATION = 0.9
"""Closer to the runners' capacity, queues grow for longer than is simulated here."""
_IDLE = 1e-4
"""Of the capacity of one place: so few requests that hardly any meets another one."""


@dataclass(frozen=True)
class Wanted:
    """What must be met, by how many of all requests, and how they are spread."""

    objectives: Objectives
    share: float = 0.99
    balance: Balance = "least_conn"


@dataclass(frozen=True)
class Sized:
    """An answer: runners, and what a request meets there (seconds)."""

    rate: float
    runners: int
    runner_rate: float
    """Requests a second that one of them can serve within the objectives."""
    utilization: float
    """Share of the capacity of that many runners."""
    good: float
    first_token_p99: float
    latency_p99: float


def held(curve: Curve, runners: int, rate: float, wanted: Wanted) -> list[Answered]:
    """The requests of a steady load of that many a second, without those at the start, when all is empty."""
    longest = curve.most_streams / curve.requests_per_second
    before = _LIFETIMES * longest
    seconds = before + max(_REQUESTS / rate, _LIFETIMES * longest)
    requests = simulate(curve, runners, Step(seconds, rate=rate).offsets(), balance=wanted.balance)
    return [request for request in requests if request.arrived >= before]


def share_good(requests: list[Answered], wanted: Wanted) -> float:
    """Share of all requests that meet the objectives."""
    limits = wanted.objectives.limits
    names = {
        "time_to_first_token": "first_token",
        "inter_token_latency": "between_tokens",
        "request_latency": "latency",
    }

    def good(request: Answered) -> bool:
        return all(getattr(request, names[name]) <= limit for name, limit in limits.items())

    return sum(map(good, requests)) / max(len(requests), 1)


class Sizing:
    """How many runners a load needs."""

    def __init__(self, curve: Curve, wanted: Wanted) -> None:
        self._curve, self._wanted = curve, wanted
        self.most = cache(self._most)

    def possible(self) -> bool:
        """Whether a runner meets the objectives at all, with a single request at a time."""
        return self._keeps(1, self._idle)

    def size(self, rate: float) -> Sized:
        """For that many requests a second; `possible` must be true."""
        low = max(1, math.ceil(rate / self._limit(1)))
        if low <= GROUP and self._keeps(GROUP, rate):
            high = GROUP
            while low < high:
                middle = (low + high) // 2
                low, high = (low, middle) if self._keeps(middle, rate) else (middle + 1, high)
            runners = simulated = low
        else:
            runners, simulated = math.ceil(rate / self.most(GROUP) * GROUP), GROUP
        requests = held(self._curve, simulated, rate / runners * simulated, self._wanted)
        firsts = sorted(request.first_token for request in requests)
        latencies = sorted(request.latency for request in requests)
        return Sized(
            rate,
            runners,
            self.most(simulated) / simulated,
            rate / (runners * self._curve.requests_per_second),
            share_good(requests, self._wanted),
            firsts[int(0.99 * (len(firsts) - 1))],
            latencies[int(0.99 * (len(latencies) - 1))],
        )

    @property
    def _idle(self) -> float:
        """Requests a second that leave a runner idle between two of them."""
        return self._curve.requests_per_second / self._curve.most_streams * _IDLE

    def _limit(self, runners: int) -> float:
        return runners * self._curve.requests_per_second * _MAX_UTILIZATION

    def _keeps(self, runners: int, rate: float) -> bool:
        if rate > self._limit(runners):
            return False
        requests = held(self._curve, runners, rate, self._wanted)
        return share_good(requests, self._wanted) >= self._wanted.share

    def _most(self, runners: int) -> float:
        """Requests a second that this many can serve within the objectives; at least a few."""
        low, high = runners * self._idle, self._limit(runners)
        if self._keeps(runners, high):
            return high
        while high - low > _PRECISION * high:
            middle = (low + high) / 2
            low, high = (middle, high) if self._keeps(runners, middle) else (low, middle)
        return low
