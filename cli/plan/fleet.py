"""Runners behind a load balancer, as discrete events.

A runner has as many places as the most streams measured on it; a request that finds none waits, first come,
first served. The first token of a request takes as long as was measured at that number of streams. From then
on all streams of a runner get tokens at one pace, which changes whenever their number does (processor
sharing).
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Literal

import simpy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from cli.plan.curve import Curve

Balance = Literal["least_conn", "round_robin", "random"]
BALANCES: tuple[Balance, ...] = ("least_conn", "round_robin", "random")
_SEED = 0


@dataclass(slots=True)
class Answered:
    """One request; times in seconds."""

    arrived: float
    tokens: int
    first_token: float = 0.0
    """From its arrival, including its wait."""
    ended: float = 0.0

    @property
    def latency(self) -> float:
        """From its arrival to its end."""
        return self.ended - self.arrived

    @property
    def between_tokens(self) -> float:
        """Mean time between two tokens."""
        return (self.latency - self.first_token) / max(self.tokens - 1, 1)


class _Runner:
    """One runner. `progress` is how many tokens a stream would have got since the very start."""

    def __init__(self, clock: simpy.Environment, curve: Curve, chance: random.Random) -> None:
        self._clock, self._curve, self._chance = clock, curve, chance
        self.requests = 0
        """Requests that run or wait."""
        self._running = 0
        self._waiting: deque[Answered] = deque()
        self._progress = self._changed = 0.0
        self._ends: list[tuple[float, int, Answered]] = []  # by progress
        self._number = count()
        self._turn = 0  # which of the planned ends applies: the latest

    def take(self, request: Answered) -> None:
        """A request arrives."""
        self.requests += 1
        if self._running < self._curve.most_streams:
            self._begin(request)
        else:
            self._waiting.append(request)

    def _begin(self, request: Answered) -> None:
        self._move()
        self._running += 1
        self._plan()
        seconds = self._curve.first_token(self._running, self._chance.random())
        first = self._clock.timeout(seconds)
        first.callbacks.append(lambda _: self._first_token(request))

    def _first_token(self, request: Answered) -> None:
        request.first_token = self._clock.now - request.arrived
        self._move()
        heappush(self._ends, (self._progress + request.tokens - 1, next(self._number), request))
        self._plan()

    def _move(self) -> None:
        """Give all streams their tokens for the time since the last change."""
        now = self._clock.now
        if self._ends:
            self._progress += (now - self._changed) / max(self._curve.between_tokens(self._running), 1e-9)
        self._changed = now

    def _plan(self) -> None:
        """Plan when the next stream ends, at the current pace."""
        self._turn += 1
        if not self._ends:
            return
        turn = self._turn
        left = max(self._ends[0][0] - self._progress, 0.0)
        planned = self._clock.timeout(left * self._curve.between_tokens(self._running))
        planned.callbacks.append(lambda _: self._end(turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return
        self._move()
        _, _, request = heappop(self._ends)
        request.ended = self._clock.now
        self._running -= 1
        self.requests -= 1
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._plan()


def simulate(
    curve: Curve,
    runners: int,
    arrivals: Iterable[float],
    *,
    balance: Balance = "least_conn",
    output_tokens: Sequence[int] | None = None,
) -> list[Answered]:
    """Requests that arrive at these times (s, ascending), answered by that many runners; in order of arrival.

    `output_tokens`: lengths of answers, chosen at random; None: as measured.
    """
    clock = simpy.Environment()
    chance = random.Random(_SEED)  # noqa: S311 - a load, no secret
    fleet = [_Runner(clock, curve, chance) for _ in range(runners)]
    lengths = output_tokens or [curve.output_tokens]
    requests = [Answered(when, chance.choice(lengths)) for when in arrivals]
    turn = count()

    def choose() -> _Runner:
        if balance == "random":
            return chance.choice(fleet)
        start = next(turn) % runners
        if balance == "round_robin":
            return fleet[start]
        # As nginx and Envoy choose among equals: in turn.
        return min(fleet[start:] + fleet[:start], key=lambda runner: runner.requests)

    def load() -> Generator[simpy.Event, None, None]:
        for request in requests:
            yield clock.timeout(request.arrived - clock.now)
            choose().take(request)

    clock.process(load())
    clock.run()
    return requests
