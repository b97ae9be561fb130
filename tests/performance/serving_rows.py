"""What a token costs, how fast the first one comes, and whether every stream keeps the engine's pace.

With the mock engine, which steps for all streams together as real ones do.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx2

from tests.performance.load import (
    CORES,
    WANTED_CORES,
    Served,
    Streams,
    bare_server,
    load,
    median_run,
    on_cores,
    runner,
    scaled,
    sleeping_predictor,
)
from tests.performance.row import Chart, Row

STREAMS = 64
TOKENS = 1000
RATE = 100
BURSTS = 9
TRIES = 3  # a busy machine makes chunks of several tokens, which cost less
FLAT_OUT_CORES = 2
H200_RATE = 36
"""Tokens per second of each of 512 streams that one H200 makes."""


def rows() -> list[Row | Chart]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        cpu, bursts = _costs(directory)
        many, most = _many_streams(directory)
        bare = _bare_burst(directory)
        with on_cores(FLAT_OUT_CORES), runner(directory, tokens_per_second=1e6) as server:
            load(server, STREAMS, 32)
            flat_out = [load(server, STREAMS, 4 * TOKENS).all_whole() for _ in range(3)]
    sleeping = cpu["a Cog predictor that only sleeps"].microseconds
    name = f"{STREAMS} streams at {RATE}/s, CPU of all processes"
    told = "" if CORES >= WANTED_CORES else f" (scaled to {CORES} cores)"
    count, double = scaled(512), scaled(1024)
    at_once = f"{count} streams at {H200_RATE}/s at once{told}"
    bounds = {"Cog's API": 0.5, "OpenAI's API": 0.5, "Cog's server": 1.8}
    ours = cpu["Cog's API"].microseconds
    return [
        *(Row(f"{name}: {who}{cost.told}", cost.microseconds, "us/token") for who, cost in cpu.items()),
        *(
            Row(f"{name}: {who} / the sleeping predictor", cpu[who].microseconds / sleeping, at_most=bound)
            for who, bound in bounds.items()
        ),
        Row(
            f"{name}: Cog's API / the same under Cog's server",
            ours / cpu["Cog's server"].microseconds,
            at_most=0.25,
        ),
        Row(f"{STREAMS} streams at once: time to first token, p50", median_run(bursts), "ms", at_most=40),
        Row(
            f"{at_once}: slowest stream / engine",
            statistics.median(min(run.rates()) for run in many) / H200_RATE,
            at_least=0.99,
        ),
        Row(
            f"{at_once}: chunks per token",
            statistics.median(run.chunks / run.tokens for run in many),
            at_least=0.95,
        ),
        Row(f"{at_once}: time to first token, p50", median_run(many), "ms", at_most=150),
        Row(f"{at_once}: time to first token, p95", median_run(many, 0.95), "ms", at_most=400),
        Row(f"{at_once}: time to first token, p50: a bare server of constant events", median_run(bare), "ms"),
        Row(
            f"{double} streams at {H200_RATE}/s{told}: slowest stream / engine",
            min(most.rates()) / H200_RATE,
            at_least=0.97,
        ),
        Row(
            f"{STREAMS} streams, flat out on {min(CORES, FLAT_OUT_CORES)} cores, client and all",
            statistics.median(run.tokens / run.seconds for run in flat_out) / 1000,
            "thousand tokens/s",
            at_least=150,
        ),
        Chart(
            "cost",
            f"What a token costs, {STREAMS} streams at {RATE}/s",
            "CPU of all processes, us per token",
            bars={who: cost.microseconds for who, cost in cpu.items()},
        ),
        Chart(
            "first-token",
            f"Time to first token of {at_once}",
            "ms",
            "share of the streams that have it",
            lines={"Cog's API": _shares(many), "a bare server of constant events": _shares(bare)},
        ),
    ]


def _shares(runs: list[Streams]) -> list[tuple[float, float]]:
    """By the share of the streams that have a first token, after how many ms they had it."""
    return [(round(median_run(runs, percent / 100), 2), percent / 100) for percent in range(0, 101, 2)]


@dataclass(frozen=True)
class _Cost:
    """The cost of a token, over that many complete streams."""

    microseconds: float
    streams: int

    @property
    def told(self) -> str:
        """The number of streams, if some were refused: the remaining ones cost more each."""
        return "" if self.streams == STREAMS else f" ({self.streams} streams: it refused the others)"


def _costs(directory: Path) -> tuple[dict[str, _Cost], list[Streams]]:
    """CPU per token of each server, and bursts of few tokens through ours."""
    cpu = {}
    with runner(directory, step_seconds=1 / RATE) as server:
        load(server, STREAMS, 32)
        cpu["Cog's API"] = _cost(server)
        model = httpx2.get(f"{server.url}/v1/models").json()["data"][0]["id"]
        body = {"model": model, "prompt": "x", "max_tokens": TOKENS, "stream": True}
        cpu["OpenAI's API"] = _cost(server, path="/v1/completions", body=body)
        bursts = [load(server, STREAMS, 32).all_whole() for _ in range(BURSTS)]
    # Cog gives a slot back some time after the answer: hence twice as many.
    slots = 2 * STREAMS
    with runner(directory, step_seconds=1 / RATE, SERVER="cog", COG_MAX_CONCURRENCY=str(slots)) as server:
        load(server, 1, 32)
        cpu["Cog's server"] = _cost(server)
    with sleeping_predictor(directory, slots) as server:
        body = {"input": {"max_tokens": TOKENS, "rate": float(RATE)}}
        cpu["a Cog predictor that only sleeps"] = _cost(server, body=body)
    with bare_server(directory, TOKENS, RATE) as server:
        cpu["a bare server of constant events"] = _cost(server)
    return cpu, bursts


def _cost(server: Served, **request: object) -> _Cost:
    for _ in range(TRIES):
        before = server.cpu_seconds()
        ran = load(server, STREAMS, TOKENS, **request)
        # Cog refuses one now and then when two come at one instant.
        if ran.whole + ran.refused < STREAMS or ran.refused > STREAMS // 10:
            ran.all_whole()
        if ran.chunks >= 0.9 * ran.tokens:
            return _Cost(1e6 * (server.cpu_seconds() - before) / ran.tokens, ran.whole)
    raise AssertionError(f"{ran.tokens} tokens came in {ran.chunks} chunks: fewer cost less")


def _many_streams(directory: Path) -> tuple[list[Streams], Streams]:
    seconds = 8
    with runner(directory, step_seconds=1 / H200_RATE) as server:
        load(server, STREAMS, 32)
        many = [load(server, scaled(512), seconds * H200_RATE).all_whole() for _ in range(3)]
        most = load(server, scaled(1024), 2 * seconds * H200_RATE).all_whole()
    return many, most


def _bare_burst(directory: Path) -> list[Streams]:
    """What the machine needs for that many simultaneous connections, and the first events on them."""
    with bare_server(directory, H200_RATE, H200_RATE) as server:
        load(server, STREAMS, H200_RATE)
        return [load(server, scaled(512), H200_RATE) for _ in range(3)]
