"""Whether `cog-triton perf` is fast enough to judge servers: against one that sends events by the clock.

Its streams have 25 events a second each: 50 thousand a second together, from 2,000 of them on four cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT
from tests.performance.load import scaled
from tests.performance.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

STREAMS = scaled(2000)
RATE = 25
EVENTS = 250  # of each
GOAL = 50_000  # events a second


@contextmanager
def server() -> Iterator[str]:
    """One of constant events."""
    port = free_port()
    command = [sys.executable, "-m", "tests.support.perf_server", str(port), json.dumps({"rate": RATE})]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                httpx2.get(f"{url}/health-check")
                break
            except httpx2.TransportError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def rows() -> list[Row]:
    """Streams keep their rate, and the client has room on its core."""
    arguments = [
        "--target",
        "mock",
        "--concurrency",
        STREAMS,
        "--requests",
        STREAMS,
        "--n_output_tokens",
        EVENTS,
    ]
    with server() as url:
        command = [
            Path(sys.executable).with_name("cog-triton"),
            "perf",
            url,
            *arguments,
            "--duration",
            60,
            "--json",
        ]
        done = subprocess.run(list(map(str, command)), check=True, capture_output=True, timeout=120)
    [step] = json.loads(done.stdout)["steps"]
    kept = step["output_token_throughput_per_user"]["p50"] / RATE
    lost = step["tokens"]["lost"] + step["requests"]["failed"]
    client = step["client"]
    core = client["cpu_us_per_event"] * GOAL / 1e6
    name = f"{STREAMS:,} streams at {RATE}/s"
    return [
        Row(f"{name}: tokens lost, requests failed", lost, at_most=0),
        Row(f"{name}: rate that the client sees, of the server's", kept, at_least=0.97),
        Row(f"{name}: the client's lag, p50", client["lag"]["p50"], "ms"),
        Row(f"{GOAL:,} events/s: share of a core", core, at_most=1),
    ]
