"""How long a runner takes from its start to its first answer, with the mock engine in its cache."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from builder.pipeline import build
from demo.cog_client import PredictionClient
from demo.cog_server import CogServer
from tests.performance.row import Row

STARTS = 7


def start(directory: Path) -> tuple[float, float]:
    """Seconds from the start of the process to READY, and to the first token."""
    environment = {
        "COG_WEIGHTS": str(directory / "engine.tar"),
        "WEIGHTS_CACHE": str(directory / "weights"),
        "PYTHONDONTWRITEBYTECODE": "",  # images have bytecode, and a checkout after its first start
    }
    with (directory / "log").open("wb") as log:
        started = time.monotonic()
        with CogServer("runner", environment=environment, output=log.fileno()) as server:
            server.wait_ready(120)
            ready = time.monotonic() - started
            next(PredictionClient(server.url).text({"prompt": "x", "max_tokens": 1}))
            return ready, time.monotonic() - started


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        (directory / "config.yaml").write_text("engine: mock\n")
        build(str(directory / "config.yaml"), directory / "engine.tar")
        start(directory)  # unpacks the engine
        ready, token = (
            statistics.median(seconds)
            for seconds in zip(*(start(directory) for _ in range(STARTS)), strict=True)
        )
        interpreter = statistics.median(_interpreter() for _ in range(STARTS))
    name = f"{STARTS} starts with the mock engine, median: process start to"
    return [
        Row(f"{name} READY", ready, "s", at_most=1),
        Row(f"{name} the first token", token, "s"),
        Row(f"{STARTS} starts of a Python that imports asyncio, median: start to end", interpreter, "s"),
    ]


def _interpreter() -> float:
    """The yardstick: seconds that the smallest of a runner's processes takes for its imports."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", "import asyncio"], check=True)
    return time.monotonic() - started
