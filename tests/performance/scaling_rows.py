"""Whether a token costs the same among many streams and late in a long one, and a prompt no more than its length.

*CPU of all processes* as in the rows of serving. By number of streams it is that of the tokens alone, counted while
all streams run; by length it is that of whole predictions.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from tests.performance.load import CORES, WANTED_CORES, load, runner, scaled
from tests.performance.row import Chart, Row

if TYPE_CHECKING:
    from tests.performance.load import Served, Streams

FROM = 64
"""Streams from which on the bound holds: with fewer, each step of the engine is paid by a few."""
SPREAD = 1.5
STREAMS = (1, 8, FROM, 256, 1024)
RATE = 36
BEGIN, WINDOW = 3, 5  # s
LENGTHS = (128, 2048, 32768)
LENGTH_RATE = 500
PROMPTS = (1_000, 10_000, 100_000)
SAMPLES = 5


def rows() -> list[Row | Chart]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        streams, lengths = _by_streams(directory), _by_length(directory)
        seconds, memory = _by_prompt(directory)
    told = "" if CORES >= WANTED_CORES else f" (scaled to {CORES} cores)"
    many = [cost for count, cost in streams.items() if count >= scaled(FROM)]
    shortest, longest = PROMPTS[-2:]
    growth = longest / shortest
    return [
        *(
            Row(f"{count} streams at {RATE}/s{told}: CPU of all processes", cost, "us/token")
            for count, cost in streams.items()
        ),
        Row(
            f"from {scaled(FROM)} streams on: dearest token / cheapest", max(many) / min(many), at_most=SPREAD
        ),
        *(
            Row(f"{FROM} streams of {tokens} tokens: CPU of all processes", cost, "us/token")
            for tokens, cost in lengths.items()
        ),
        Row(
            f"{FROM} streams, by their length: dearest token / cheapest",
            max(lengths.values()) / min(lengths.values()),
            at_most=SPREAD,
        ),
        *(
            Row(f"a prompt of {count} tokens: until the answer of one token, median", 1000 * took, "ms")
            for count, took in seconds.items()
        ),
        *(
            Row(
                f"{what} for each token of a prompt: of {longest} / of {shortest}",
                figures[longest] / figures[shortest] / growth,
                at_most=SPREAD,
            )
            for what, figures in (("time", seconds), ("memory", memory))
        ),
        Row(f"a prompt of {longest} tokens: memory at the peak", memory[longest] / 1e6, "MB"),
        Chart(
            "cost-by-streams",
            f"What a token costs among many streams, at {RATE}/s each",
            "streams",
            "CPU of all processes, us per token",
            lines={"Cog's API": list(streams.items())},
            logarithmic=True,
        ),
        Chart(
            "cost-by-length",
            f"What a token costs in a long prediction, {FROM} streams",
            "tokens of each prediction",
            "CPU of all processes, us per token",
            lines={"Cog's API": list(lengths.items())},
            logarithmic=True,
        ),
    ]


def _by_streams(directory: Path) -> dict[int, float]:
    with runner(directory, step_seconds=1 / RATE) as server:
        load(server, FROM, RATE)
        return {count: _while_streaming(server, count) for count in sorted(set(map(scaled, STREAMS)) - {0})}


def _while_streaming(server: Served, streams: int) -> float:
    """Microseconds for a token, of those that come while all streams run."""
    # A few streams use so little that it takes longer to see it.
    window = WINDOW if streams >= FROM else 3 * WINDOW
    ran: list[Streams] = []
    tokens = RATE * (BEGIN + window + 1)
    client = threading.Thread(target=lambda: ran.append(load(server, streams, tokens)), daemon=True)
    client.start()
    time.sleep(BEGIN)
    before, started = server.cpu_seconds(), time.monotonic()
    time.sleep(window)
    used, took = server.cpu_seconds() - before, time.monotonic() - started
    client.join()
    _alone(ran[0].all_whole())
    return 1e6 * used / (streams * RATE * took)


def _by_length(directory: Path) -> dict[int, float]:
    found = {}
    with runner(directory, step_seconds=1 / LENGTH_RATE, max_seq_len=2 * LENGTHS[-1]) as server:
        load(server, FROM, LENGTH_RATE)
        for tokens in LENGTHS:
            before = server.cpu_seconds()
            runs = [load(server, FROM, tokens).all_whole() for _ in range(max(1, 2048 // tokens))]
            found[tokens] = 1e6 * (server.cpu_seconds() - before) / sum(_alone(run).tokens for run in runs)
    return found


def _alone(run: Streams) -> Streams:
    """This, when nearly every token came alone."""
    if run.chunks < 0.9 * run.tokens:
        raise AssertionError(f"{run.tokens} tokens came in {run.chunks} chunks: fewer cost less")
    return run


def _by_prompt(directory: Path) -> tuple[dict[int, float], dict[int, float]]:
    """By the number of tokens, seconds until the answer, and how many bytes of memory came on top."""
    seconds, memory = {}, {}
    with runner(directory, max_seq_len=2 * PROMPTS[-1]) as server, httpx2.Client(timeout=60) as http:

        def once(prompt: str) -> float:
            started = time.perf_counter()
            answer = http.post(
                f"{server.url}/predictions", json={"input": {"prompt": prompt, "max_tokens": 1}}
            ).json()
            if answer["status"] != "succeeded":
                raise AssertionError(answer)
            return time.perf_counter() - started

        once("x")
        for count in PROMPTS:
            prompt = " ".join(str(number % 10_000) for number in range(count))
            _forget_peak(server)
            before = _peak(server)
            first = once(prompt)
            memory[count] = float(_peak(server) - before)
            seconds[count] = statistics.median([first, *(once(prompt) for _ in range(SAMPLES - 1))])
    return seconds, memory


def _peak(server: Served) -> int:
    """The most bytes that its processes have had, each by itself."""
    statuses = [Path(f"/proc/{pid}/status").read_text().split() for pid in server.pids()]
    return sum(1024 * int(words[words.index("VmHWM:") + 1]) for words in statuses)


def _forget_peak(server: Served) -> None:
    for pid in server.pids():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
