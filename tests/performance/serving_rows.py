"""How fast tokens get from the engine to the client: through Cog, Triton and the bridge, with the mock engine."""

from __future__ import annotations

import os
import statistics
import tempfile
from contextlib import contextmanager
from pathlib import Path

from builder.pipeline import build
from demo.cog_server import CogServer
from tests.performance.row import Row
from tests.support.load import Stream, run_streams
from tests.support.processes import MARK, marked

STREAMS = 64
TOKENS = 512
RATE = 100
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def runner(directory: Path, rate: float, *, concurrency: int = 2 * STREAMS, **settings: str):
    """A runner with a mock of so many tokens per second and stream."""
    config = directory / f"mock-{rate}.yaml"
    config.write_text(f"engine: mock\ntokens_per_second: {rate}\n")
    archive = directory / f"mock-{rate}.tar"
    build(str(config), archive)
    mark = os.urandom(8).hex()
    environment = {
        MARK: mark,
        "COG_WEIGHTS": str(archive),
        "WEIGHTS_CACHE": str(directory / "weights"),
        **settings,
    }
    with (directory / "log").open("wb") as log:
        # Cog gives a slot back some time after the answer: hence twice as many.
        server = CogServer("runner", concurrency=concurrency, environment=environment, output=log.fileno())
    with server:
        server.mark = mark  # type: ignore[attr-defined] # for the tests alone
        server.wait_ready(120)
        yield server


def cpu_seconds(mark: str) -> float:
    """What all processes of a runner have used."""
    total = 0
    for pid in marked(mark):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


def load(server: CogServer, tokens: int) -> list[Stream]:
    streams = run_streams(server.url, [{"prompt": "x", "max_tokens": tokens}] * STREAMS)
    whole = " ".join(str(number % 10_000) for number in range(tokens))
    for stream in streams:
        if stream.text != whole:
            raise AssertionError(f"a stream lost tokens: {stream.result}")
    return streams


def rate_of(stream: Stream, tokens: int) -> float:
    """Tokens per second after the first."""
    return (tokens - 1) / (stream.chunks[-1][0] - stream.chunks[0][0])


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        with runner(directory, RATE) as server:
            load(server, 32)
            before = cpu_seconds(server.mark)
            paced = load(server, TOKENS)
            used = cpu_seconds(server.mark) - before
        with runner(directory, 2_000) as server:
            load(server, 32)
            fast = load(server, 4 * TOKENS)
    seconds = max(stream.ended_at for stream in fast) - min(stream.sent_at for stream in fast)
    name = f"{STREAMS} streams x {TOKENS} tokens at {RATE} tokens/s"
    return [
        Row(
            f"{name}: slowest stream / engine",
            min(rate_of(one, TOKENS) for one in paced) / RATE,
            at_least=0.97,
        ),
        Row(
            f"{name}: median stream / engine",
            statistics.median(rate_of(one, TOKENS) for one in paced) / RATE,
            at_least=0.995,
        ),
        Row(
            f"{name}: latest first chunk / duration of its stream",
            max((one.chunks[0][0] - one.sent_at) / (one.ended_at - one.sent_at) for one in paced),
            at_most=0.1,
        ),
        Row(f"{name}: CPU of all processes", 1e6 * used / (STREAMS * TOKENS), "us/token"),
        Row(
            f"{STREAMS} streams at 2000 tokens/s each: through Cog",
            4 * TOKENS * STREAMS / seconds,
            "tokens/s",
        ),
    ]
