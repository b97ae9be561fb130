"""docs/performance-gpu.md from the reports in reports/: `python -m tests.gpu.serving.page`

Each is what a call of `tests.gpu.serving` wrote; what was measured with `--weights` is the section on several GPUs.
Of the calls in earlier.txt only the tables were kept.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.gpu.serving.model import PROMPT_TOKENS
from tests.gpu.serving.tables import SIDES, Figure, Runs, comparable, cpu, rates, table, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parents[3]
REPORTS = Path(__file__).parent / "reports"
_PARTS = {
    "runner.engines.process": "the engine process",
    "EngineCor": "vLLM's engine core",
    "bin/tritonserver": "Triton",
    "VLLM::Worker_TP1": "a worker",
    "joined host": "the joined host",
    "worker of the joined host": "a worker of the joined host",
}
_PROFILED = {"async_llm": SIDES["async_llm"], "runner": SIDES["runner, openai"]}
_FUNCTIONS = 5
_MADE = re.compile(r"\b[a-z2-7]{40,}\.py")  # named by the hash of its content
_INTRO = """\
# On a GPU

Made by `python -m tests.gpu.serving.page` from the reports of {calls} calls of `tests.gpu.serving`:
{gpu_and_driver}, {cores} cores; vLLM {vllm}, PyTorch {torch}, Python {python}; {date}.

A model of the shape of Llama 3 8B with random weights, bf16, 128 tokens in and 256 out, temperature 1, all streams
at once; max_num_seqs 1024, max_num_batched_tokens 8192, no prefix caching, the same for every side. Medians of {runs}
runs; streams that were refused or lost a token: {lost}. What was copied to the machine left out FlashAttention 2,
FlashInfer and what this model does not load. Cog's API gets text, which is cut into tokens here; the others get token ids.

"""
_BURST = """
The prompts of 512 streams are eight steps of 8,192 tokens, of some 185 ms each. Of all gaps between
chunks, 1.4% hold one of them, so that the p99 at 512 is the length of one, even without a front: of a full one
or, sometimes, of the last, which is shorter. A front that lets the requests in more slowly spreads the prompts over
more and shorter steps: its p99 is lower, and its first tokens come later. The Rust front does that in its first bursts after a
start; it takes many runs to compare p99s ([below](#512-streams-call-by-call)). The median of 512 streams has its first
token after the fourth, fifth or sixth step, that of 256 streams after the second or third: how many requests have come
when the first step begins decides which, and moves the p50 by up to a step from run to run. With 1,024 streams, the pace
is that of the engine core's one busy thread: 17,200 to 20,300 tokens/s from run to run.

With steps of half as many tokens (`max_num_batched_tokens`, [below](#with-max_num_batched_tokens-4096)) the longest gaps
are half as long at the same number of tokens per second, and the last of 512 first tokens comes some 5% later. Twice as
many gaps hold a step with prompts: at 256 streams they are now more than 1%, too.

"""
_CALLS = """
## 512 streams, call by call

Each call was on a different machine of this kind. The table at the top has those that had every side.

"""
_MANY = 512
_SLOW_PATH = ("serve_rust",)  # sides whose CPU time these reports don't show: see _CPU
_CPU = """
CPU time, in two tables: first that of all processes except the engine core (ours are the front, Triton and the engine
process), then that of the engine core.

The first table has no row for the Rust front of `vllm serve`. The tokenizer of these calls is a made-up one of whole words
(WordLevel), for which that front takes a slow path. Its other rows on this page took the slow path, too. An independent
measurement on an H200 with a byte-level BPE tokenizer, as real models have, found for 512 streams at once:

| | cog-triton, OpenAI's API | `vllm serve`, Rust front |
|---|---|---|
| output tokens/s | 19,447 to 19,777 | 19,356 to 19,616 |
| CPU of all processes except the engine core, us per token | **32 to 37** | 20 to 21 |
| chats of six turns with a shared system prompt: first token, p50, ms | **49 to 63** | 37 to 38 |
| the same: CPU, us per token | **96 to 109** | 50 to 51 |

So the throughput is the same, a token costs us more CPU, and the first tokens of chats come later.

"""
_SEVERAL = """
## Two GPUs

Two GPUs of one machine ({gpu_and_driver}); vLLM {vllm}, PyTorch {torch}; {date}. The same shape, with
the same random weights throughout, read from disk. "Two hosts" are two network namespaces with a GPU each, a host name
and shared memory of their own: `cog-triton serve` on the first, `cog-triton join` on the second
([several-hosts.md](several-hosts.md)). Their GPUs exchange everything over TCP and the CPU, as on hosts that have no
faster network; what that costs is seen here, not what a fast network gives.

"""
_ROUNDING = """
Sums are taken in another order on two GPUs. Where two tokens are almost equally likely, the other one may be chosen,
and from there on the texts differ.

"""
_PROMPTS = """
## With prompts of other lengths

{streams} streams, the rest as at the top.

"""
_OTHER_GPU = """
## On an {gpu}

{calls} calls: {gpu_and_driver}, {cores} cores; vLLM {vllm}, PyTorch {torch}; {date}. The rest as at the top; streams
that were refused or lost a token: {lost}.

"""
_PROFILE = """
What the threads of each process were doing when they were not waiting, during one more burst: the functions in
which the stacks that py-spy saw ended most often.

"""


def page(reports: list[list[Figure]]) -> str:
    """The text of the page."""
    all_figures = [figure | {"call": call} for call, report in enumerate(reports) for figure in report]
    figures, *on_others = by_gpu([figure for figure in all_figures if "weights" not in figure])
    # By the arguments that a call gave to every side.
    runs: dict[str, Runs] = defaultdict(lambda: defaultdict(list))
    for figure in figures:
        if figure["side"] in SIDES and prompt_of(figure) == PROMPT_TOKENS:
            arguments = json.dumps(figure.get("engine_args", {}))
            runs[arguments][figure["side"], figure["streams"]].append(figure)
    every = runs.pop("{}")
    plain = comparable(every)
    counts = sorted({len(found) for by_side in (plain, *runs.values()) for found in by_side.values()})
    machines = [figure for figure in figures if figure["side"] == "machine"]
    facts = facts_of(machines)
    parts = [
        _INTRO.format(
            calls=len(machines),
            runs=" to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
            lost=lost(figures),
            **facts,
        ),
        *latencies(plain),
        _BURST,
        _CPU.lstrip(),
        *cpus(plain),
        *profiles(figures),
        *held(figures),
        *(part for arguments, found in runs.items() for part in others(arguments, found)),
        *call_by_call(every),
        *prompts(figures),
        *(part for others_figures in on_others for part in other_gpu(others_figures)),
        *several([figure for figure in all_figures if "weights" in figure]),
    ]
    return "".join(parts)


def by_gpu(figures: list[Figure]) -> list[list[Figure]]:
    """The figures of each kind of GPU, in the order in which the calls met them."""
    gpus = {figure["call"]: gpu_of(figure) for figure in figures if figure["side"] == "machine"}
    found: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        found[gpus[figure["call"]]].append(figure)
    return list(found.values())


def gpu_of(machine: Figure) -> str:
    """Its name, without the driver."""
    return str(machine["gpu_and_driver"].partition(",")[0])


def lost(figures: list[Figure]) -> int:
    """The streams that were refused or lost a token."""
    return sum(run["streams"] - run["whole"] for run in figures if "whole" in run)


def whole_page() -> str:
    """What docs/performance-gpu.md is."""
    reports = [json.loads(path.read_bytes()) for path in sorted(REPORTS.glob("*.json"))]
    return page(reports) + "\n" + (REPORTS / "earlier.txt").read_text()


def latencies(runs: Runs) -> Iterator[str]:
    """The tables of how fast tokens come."""
    yield rates("output tokens/s (of the engine driven directly in the same call)", runs)
    yield "\n" + times("time to first token, p50 / p99, ms", runs, "time_to_first_token", 0)
    yield "\n" + times("gap between chunks, p50 / p99, ms", runs, "gap", 1)


def cpus(runs: Runs) -> Iterator[str]:
    """The tables of CPU time."""
    measured = {place: found for place, found in runs.items() if place[0] not in _SLOW_PATH}
    yield cpu("CPU, us per token", measured, core=False)
    yield "\n" + cpu("CPU of the engine core, us per token", runs, core=True)
    yield "\n"


def held(figures: list[Figure]) -> Iterator[str]:
    """The table of all that is not speed."""
    yield "| what else has to hold | |\n|---|---|\n"
    for what, told in _rows(figures).items():
        yield f"| {what} | {'; '.join(dict.fromkeys(told))} |\n"


def call_by_call(runs: Runs) -> Iterator[str]:
    """The section on the p99s of the calls that had the Rust front, too."""
    calls = sorted({run["call"] for run in runs.get(("serve_rust", _MANY), [])})
    if not calls:
        return
    yield _CALLS
    yield f"| p99 of gap / of first token, ms (runs) |{' |' * len(calls)}\n{'|---' * (len(calls) + 1)}|\n"
    for side, name in SIDES.items():
        cells = []
        for call in calls:
            found = [run for run in runs.get((side, _MANY), []) if run["call"] == call]
            gap, first = (
                1e3 * median(run[key]["p99"] for run in found) if found else 0.0
                for key in ("gap", "time_to_first_token")
            )
            cells.append(f"{gap:.1f} / {first:.0f} ({len(found)})" if found else "")
        if any(cells):
            yield f"| {name} | {' | '.join(cells)} |\n"


def others(arguments: str, runs: Runs) -> Iterator[str]:
    """The section on what was measured with further engine arguments."""
    told = ", ".join(f"{name} {value}" for name, value in json.loads(arguments).items())
    yield f"\n## With {told}\n\n"
    yield from latencies(runs)


def prompt_of(figure: Figure) -> int:
    """The tokens of every prompt of a burst."""
    return int(figure.get("prompt_tokens", PROMPT_TOKENS))


def prompts(figures: list[Figure]) -> Iterator[str]:
    """The section on prompts of other lengths, from the calls that measured some; it needs one number of streams."""
    calls = {figure["call"] for figure in figures if prompt_of(figure) != PROMPT_TOKENS}
    counts = {figure["streams"] for figure in figures if prompt_of(figure) != PROMPT_TOKENS}
    runs: Runs = defaultdict(list)
    for figure in figures:
        if figure["call"] in calls and figure["side"] in SIDES and figure["streams"] in counts:
            runs[figure["side"], prompt_of(figure)].append(figure)
    if runs:
        (streams,) = counts
        yield _PROMPTS.format(streams=streams)
        yield times("first token, p50 / p99, ms; prompt tokens:", runs, "time_to_first_token", 0)
        yield "\n" + times("gap, p50 / p99, ms; prompt tokens:", runs, "gap", 1)


def other_gpu(figures: list[Figure]) -> Iterator[str]:
    """The section on a kind of GPU that is not the one at the top."""
    machines = [figure for figure in figures if figure["side"] == "machine"]
    yield _OTHER_GPU.format(
        gpu=gpu_of(machines[0]), calls=len(machines), lost=lost(figures), **facts_of(machines)
    )
    runs: Runs = defaultdict(list)
    for figure in figures:
        if figure["side"] in SIDES:
            runs[figure["side"], figure["streams"]].append(figure)
    plain = comparable(runs)
    yield from latencies(plain)
    yield "\n"
    yield from cpus(plain)
    yield from held(figures)


def facts_of(machines: list[Figure]) -> dict[str, str]:
    """What the machines of all calls are."""
    return {key: _and(list(dict.fromkeys(str(one.get(key)) for one in machines))) for key in machines[0]}


def _and(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def place(figure: Figure) -> str:
    """On how many GPUs and hosts it was measured."""
    return "two hosts" if "hosts" in figure else "two GPUs" if "gpus" in figure else "one GPU"


def several(figures: list[Figure]) -> Iterator[str]:
    """The section on more GPUs than one."""
    if not figures:
        return
    yield _SEVERAL.format(**facts_of([figure for figure in figures if figure["side"] == "machine"]))
    runs: Runs = defaultdict(list)
    names = {}
    for figure in figures:
        if (side := figure["side"]) in SIDES:
            by = figure.get("engine_args", {}).get("distributed_executor_backend")
            row = f"{place(figure)}{f' by {by}' if by else ''}, {SIDES[side]}"
            runs[row, figure["streams"]].append(figure)
            names[row] = row

    def rate(found: list[Figure]) -> float:
        return median(run["tokens_per_second"] for run in found)

    def cell(count: int, found: list[Figure]) -> str:
        alone = runs.get((f"one GPU, {SIDES[found[0]['side']]}", count))
        return f"{rate(found):,.0f}" + (f" ({rate(found) / rate(alone):.2f})" if alone else "")

    yield table("output tokens/s (of one GPU's)", runs, cell, names)
    for title, key, digits in (
        ("time to first token", "time_to_first_token", 0),
        ("gap between chunks", "gap", 1),
    ):
        yield "\n" + times(f"{title}, p50 / p99, ms", runs, key, digits, names)
    yield f"\nStreams that were refused or lost a token: {lost(figures)}.\n\n"
    yield "| what else has to hold | | |\n|---|---|---|\n"
    for where in ("one GPU", "two GPUs", "two hosts"):
        for what, told in _rows(figure for figure in figures if place(figure) == where).items():
            yield f"| {where} | {what} | {'; '.join(dict.fromkeys(told))} |\n"
    yield _ROUNDING.rstrip("\n") + "\n"


def profiles(figures: list[Figure]) -> Iterator[str]:
    """Where each process was seen most often, of the last profile of a side with so many streams."""
    last = {
        (one["side"].partition(",")[0], one["streams"], one["process"]): one["functions"]
        for one in figures
        if "functions" in one
    }
    if last:
        yield _PROFILE.lstrip()
        yield "| of | streams | process | where its threads were |\n|---|---|---|---|\n"
    for (side, streams, process), functions in last.items():
        named = [(_MADE.sub("what torch.compile made", name), share) for name, share in functions]
        where = ", ".join(f"`{name}` {share:.0%}" for name, share in named[:_FUNCTIONS])
        yield f"| {_PROFILED[side]} | {streams} | {process} | {where} |\n"
    if last:
        yield "\n"


def _rows(figures: Iterable[Figure]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = defaultdict(list)
    for what, told in filter(None, map(_row, figures)):
        rows[what].append(told)
    return rows


def _row(figure: Figure) -> tuple[str, str] | None:
    """What a figure other than speed says, in words."""
    match figure:
        case {"side": "start", "seconds": seconds}:
            return "each start to READY", f"{seconds:.0f} s"
        case {"side": "greedy", "weights": _, "prompts": prompts, "equal": equal, "tokens": tokens}:
            before = figure["before_the_first_other"]
            return (
                f"greedy tokens after {prompts} prompts, {tokens} in all",
                f"{equal} prompts continued as on one GPU; {before} tokens before the first that differs",
            )
        case {"side": "nccl", "channels": channels}:
            return "NCCL's channels", ", ".join(f"{count} via {by}" for by, count in channels.items())
        case {"side": "greedy", "prompts": prompts, "equal": equal, "tokens": tokens}:
            return (
                f"greedy tokens after {prompts} prompts, {tokens} in all",
                f"{equal} prompts continued as by vLLM itself",
            )
        case {"side": "greedy", "prompts": prompts, "equal": equal, "characters": _}:
            by = "on one GPU" if "weights" in figure else "by vLLM itself"
            return f"greedy texts after {prompts} prompts", f"{equal} prompts continued as {by}"
        case {"side": "half cancelled", "streams": streams, "seconds": seconds}:
            return (
                f"half of {streams} clients leave: until the KV blocks are free, by the statistics",
                f"{seconds:.1f} s",
            )
        case {"side": "gpu processes", "told": told}:
            names = ", ".join(one.split(",")[1].split()[0] for one in told)
            return "processes that hold GPU memory while it serves", names
        case {"side": "after the end", "gpu_memory_mib": memory}:
            return "GPU memory in use after the end", f"{memory} MiB"
        case {"side": side, "told": told, "seconds_until_service": seconds, "gpu_memory_mib": memory}:
            codes = ", ".join(f"{code.replace(' ', ' with ')} to {count}" for code, count in told.items())
            until = figure["seconds_until_all_were_told"]
            part = _PARTS[side.removesuffix(" killed")]
            least = memory["least_meanwhile"]
            return (
                f"{part} killed under {figure['streams']} streams",
                f"{codes} within {until:.2f} s; service after {seconds:.0f} s; {least} MiB held meanwhile",
            )
    return None


if __name__ == "__main__":
    argparse.ArgumentParser(prog="tests.gpu.serving.page", description=__doc__).parse_args()
    (ROOT / "docs/performance-gpu.md").write_text(whole_page())
