"""Whether a token costs the same among many streams and late in a long one, and whether the cost of a
prompt grows no faster than its length.

*CPU of all processes* as in the rows of serving. By number of streams it is that of the tokens alone, counted while
all streams run, each at the pace that one H200 gives to so many ([performance-gpu.md](performance-gpu.md)); by length
it is that of whole predictions. A token that comes together with another costs less: hence the rows of chunks.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
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
PACES = {1: 195, 8: 195, FROM: 149, 256: 71, 1024: 20}
"""By the number of streams, tokens per second of each."""
BEGIN, WINDOW = 3, 5  # s
LENGTHS = (128, 2048, 32768)
LENGTH_RATE = 500
PROMPTS = (1_000, 10_000, 100_000)
SAMPLES = 5


@dataclass(frozen=True)
class _Cost:
    microseconds: float  # of CPU for a token
    chunks: float  # for a token


def rows() -> list[Row | Chart]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        streams = {
            scaled(count): _among(directory, scaled(count), pace)
            for count, pace in PACES.items()
            if scaled(count)
        }
        lengths = _by_length(directory)
        seconds, memory = _by_prompt(directory)
    told = "" if CORES >= WANTED_CORES else f" (scaled to {CORES} cores)"
    many = {count: cost for count, cost in streams.items() if count >= scaled(FROM)}
    by_length = f"{FROM} streams at {LENGTH_RATE}/s"
    shorter, longest = PROMPTS[-2:]
    return [
        *(
            Row(
                f"tokens of {count} {'stream' if count == 1 else 'streams'}{told}: CPU of all processes",
                cost.microseconds,
                "us/token",
            )
            for count, cost in streams.items()
        ),
        *_spread(f"tokens, from {scaled(FROM)} streams on", many, 0.9),
        *(
            Row(f"{by_length}, {tokens} tokens each: CPU of all processes", cost.microseconds, "us/token")
            for tokens, cost in lengths.items()
        ),
        # While the requests of a burst are read, tokens of those before them gather: a quarter of 128 at this rate.
        *_spread(f"{by_length}, by their length", lengths, 0.75),
        *(
            Row(f"a prompt of {count} tokens: until the answer of one token, median", 1000 * took, "ms")
            for count, took in seconds.items()
        ),
        *(
            Row(
                f"{what} for each token of a prompt: of {longest} / of {shorter}",
                figures[longest] / figures[shorter] / (longest / shorter),
                at_most=SPREAD,
            )
            for what, figures in (("time", seconds), ("memory", memory))
        ),
        Row(f"a prompt of {longest} tokens: memory at the peak", memory[longest] / 1e6, "MB"),
        _chart(
            "cost-by-streams", "What a token costs among many streams, at an H200's pace", "streams", streams
        ),
        _chart("cost-by-length", f"What a token costs, {by_length}", "tokens of each prediction", lengths),
    ]


def _spread(name: str, costs: dict[int, _Cost], chunks: float) -> list[Row]:
    figures = [cost.microseconds for cost in costs.values()]
    return [
        Row(f"{name}: dearest / cheapest", max(figures) / min(figures), at_most=SPREAD),
        Row(
            f"{name}: chunks per token, at least",
            min(cost.chunks for cost in costs.values()),
            at_least=chunks,
        ),
    ]


def _chart(name: str, title: str, x_label: str, costs: dict[int, _Cost]) -> Chart:
    points = [(float(x), cost.microseconds) for x, cost in costs.items()]
    label = "CPU of all processes, us per token"
    return Chart(name, title, x_label, label, lines={"Cog's API": points}, logarithmic=True)


def _among(directory: Path, streams: int, pace: int) -> _Cost:
    """Of the tokens that come while all streams run."""
    # A few streams use so little that it takes longer to see it.
    window = WINDOW if streams >= FROM else 2 * WINDOW
    ran: list[Streams] = []
    with runner(directory, step_seconds=1 / pace) as server:
        load(server, streams, pace)
        tokens = pace * (BEGIN + window + 1)
        client = threading.Thread(target=lambda: ran.append(load(server, streams, tokens)), daemon=True)
        client.start()
        time.sleep(BEGIN)
        before, started = server.cpu_seconds(), time.monotonic()
        time.sleep(window)
        used, took = server.cpu_seconds() - before, time.monotonic() - started
        client.join()
    (run,) = ran
    return _Cost(1e6 * used / (streams * pace * took), run.all_whole().chunks / run.tokens)


def _by_length(directory: Path) -> dict[int, _Cost]:
    """Of whole predictions."""
    found = {}
    with runner(directory, step_seconds=1 / LENGTH_RATE, max_seq_len=2 * LENGTHS[-1]) as server:
        load(server, FROM, LENGTH_RATE)
        for tokens in LENGTHS:
            before = server.cpu_seconds()
            runs = [load(server, FROM, tokens).all_whole() for _ in range(max(1, 2048 // tokens))]
            count = sum(run.tokens for run in runs)
            used = server.cpu_seconds() - before
            found[tokens] = _Cost(1e6 * used / count, sum(run.chunks for run in runs) / count)
    return found


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
