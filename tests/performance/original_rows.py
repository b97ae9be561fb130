"""How many times faster than the original this is: its algorithm, rewritten, on the same mock engine, in one run.

The original has Cog's server, a predictor that reads server-sent events from Triton's HTTP endpoint and decodes the
whole sequence for each token, and in Triton an ensemble with a model in Python before the engine and one behind it
(`tests/performance/baseline`).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.performance.baseline.served import INSTANCES, original
from tests.performance.load import load, runner
from tests.performance.row import Chart, Row

if TYPE_CHECKING:
    from tests.performance.load import Served, Streams

STREAMS = 64
RATE = 100
LENGTHS = (128, 512, 2048)
LENGTH_STREAMS = 8
OURS, THEIRS = "Cog's API", "the original's way"


@dataclass(frozen=True)
class _Figures:
    """Of one side."""

    many: Streams  # STREAMS at once
    cost: float  # us of CPU for one of their tokens
    by_length: dict[int, float]  # us of CPU for a token


def rows() -> list[Row | Chart]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with runner(directory, RATE, step_seconds=1 / RATE) as server:
            ours = _measure(server)
        with original(directory, 2 * STREAMS, step_seconds=1 / RATE, tokens_per_second=RATE) as server:
            theirs = _measure(server)
    sides = {OURS: ours, THEIRS: theirs}
    name = f"{STREAMS} streams at {RATE}/s"
    shortest, longest = LENGTHS[0], LENGTHS[-1]
    return [
        *(Row(f"{name}, CPU of all processes: {who}", side.cost, "us/token") for who, side in sides.items()),
        Row(f"{name}, CPU of all processes: {THEIRS} / {OURS}", theirs.cost / ours.cost, "x", at_least=10),
        *(Row(f"{name}: {who}", _throughput(side.many), "tokens/s") for who, side in sides.items()),
        Row(
            f"{name}, tokens/s: {OURS} / {THEIRS}",
            _throughput(ours.many) / _throughput(theirs.many),
            "x",
            at_least=1,
        ),
        Row(
            f"{name}: streams with every token in its place: {THEIRS}, with {INSTANCES} instances of each model",
            theirs.many.whole,
        ),
        *(
            Row(f"{name}: time to first token, p50: {who}", side.many.first_token(0.5), "ms")
            for who, side in sides.items()
        ),
        Row(
            f"{name}: time to first token, p50: {THEIRS} / {OURS}",
            theirs.many.first_token(0.5) / ours.many.first_token(0.5),
            "x",
            at_least=1,
        ),
        *(
            Row(
                f"{LENGTH_STREAMS} streams, CPU of a token of {longest} / of {shortest}: {who}",
                side.by_length[longest] / side.by_length[shortest],
            )
            for who, side in sides.items()
        ),
        Chart(
            "original-cost",
            f"What a token costs, {name}",
            "CPU of all processes, us per token",
            bars={who: side.cost for who, side in sides.items()},
        ),
        Chart(
            "original-by-length",
            f"What a token costs in a long prediction, {LENGTH_STREAMS} streams at {RATE}/s",
            "tokens of each prediction",
            "CPU of all processes, us per token",
            lines={who: list(side.by_length.items()) for who, side in sides.items()},
            logarithmic=True,
        ),
    ]


def _throughput(run: Streams) -> float:
    return run.tokens / run.seconds


def _measure(server: Served) -> _Figures:
    load(server, STREAMS, 32)
    before = server.cpu_seconds()
    many = load(server, STREAMS, 5 * RATE)
    cost = 1e6 * (server.cpu_seconds() - before) / many.tokens
    return _Figures(many, cost, {tokens: _cost(server, tokens) for tokens in LENGTHS})


def _cost(server: Served, tokens: int) -> float:
    times = max(1, 512 // tokens)
    before = server.cpu_seconds()
    count = sum(load(server, LENGTH_STREAMS, tokens).tokens for _ in range(times))
    return 1e6 * (server.cpu_seconds() - before) / count
