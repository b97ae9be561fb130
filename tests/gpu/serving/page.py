"""docs/performance-gpu.md from reports of `tests.gpu.serving`: `python -m tests.gpu.serving.page REPORT...`"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
SIDES = {
    "async_llm": "vLLM's engine directly",
    "runner, openai": "our front, OpenAI's API",
    "runner, cog": "our front, Cog's API",
    "serve_rust": "`vllm serve`, Rust front",
    "serve": "`vllm serve`, Python front",
}
_PARTS = {
    "runner.engines.process": "the engine process",
    "EngineCor": "vLLM's engine core",
    "bin/tritonserver": "Triton",
}
INTRO = """\
# On a GPU

Made by `python -m tests.gpu.serving.page` from the reports of three calls of `tests.gpu.serving`, one machine each:
an NVIDIA H200, driver 580.159.04, 16 cores; vLLM 0.26.0, PyTorch 2.11.0+cu130, Python 3.12; 21 November 2026.

A model of the shape of Llama 3 8B with random weights, bf16, 128 tokens in and 256 out, temperature 1, all streams
at once; max_num_seqs 1024, max_num_batched_tokens 8192, no prefix caching, the same for every side. Medians of two to
six runs. No request was refused and no token lost on any side. The payload left out FlashAttention 2, FlashInfer and
what this model does not load. Cog's API gets text, which is cut into tokens here; the others get token ids.

"""
_ENDS = """
vLLM captures CUDA graphs for up to 512 sequences. At 1,024 streams the engine core launches each kernel from Python,
and is slower beside our processes than alone; its figures differ by 10% from run to run.
`vllm serve` with its Python front was measured on one such machine the same day: 0.97, 0.58 and 0.52 of the engine
directly at 64, 256 and 512 streams.

"""


def table(title: str, figures: dict[tuple[str, int], str], streams: list[int]) -> str:
    head = f"| {title} | " + " | ".join(map(str, streams)) + " |\n|---|" + "---|" * len(streams) + "\n"
    rows = [
        f"| {name} | " + " | ".join(figures.get((side, count), "") for count in streams) + " |\n"
        for side, name in SIDES.items()
        if any(one == side for one, _ in figures)
    ]
    return head + "".join(rows)


def page(reports: list[list[dict[str, Any]]]) -> str:
    """The text of the page."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    others = []
    for figure in (figure for report in reports for figure in report):
        if figure["side"] in SIDES:
            runs[figure["side"], figure["streams"]].append(figure)
        else:
            others.append(figure)
    streams = sorted({count for _, count in runs})
    rate = {key: median(run["tokens_per_second"] for run in found) for key, found in runs.items()}
    shown = {
        (side, count): f"{value:,.0f} ({value / rate['async_llm', count]:.2f})"
        for (side, count), value in rate.items()
    }
    first = {
        key: "{:.0f} / {:.0f}".format(
            *(1e3 * median(run["time_to_first_token"][name] for run in found) for name in ("p50", "p99"))
        )
        for key, found in runs.items()
    }
    cpu = {
        key: f"{median(sum(_fronts(run).values()) for run in found):.0f}"
        for key, found in runs.items()
        if "cpu_us_per_token" in found[0]
    }
    parts = [
        INTRO,
        table("output tokens/s (of the engine directly)", shown, streams),
        "\n",
        table("time to first token, p50 / p99, ms", first, streams),
        "\nThe CPU's time below is of all processes but the engine core: for us front, Triton and engine process.\n\n",
        table("CPU, us per token", cpu, streams),
        _ENDS,
        "| what else has to hold | |\n|---|---|\n",
        *(f"| {what} | {'; '.join(dict.fromkeys(told))} |\n" for what, told in _rows(others).items()),
    ]
    return "".join(parts)


def _rows(figures: list[dict[str, Any]]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = defaultdict(list)
    for what, told in filter(None, map(_row, figures)):
        rows[what].append(told)
    return rows


def _row(figure: dict[str, Any]) -> tuple[str, str] | None:
    """What a figure that is none of speed says, in words."""
    match figure:
        case {"side": "start", "seconds": seconds}:
            return "start to READY", f"{seconds:.0f} s"
        case {"side": "greedy", "prompts": prompts, "equal": equal, "tokens": tokens}:
            return f"greedy tokens after {prompts} prompts, {tokens} in all", f"{equal} as vLLM's own"
        case {"side": "half cancelled", "streams": streams, "seconds": seconds}:
            return f"half of {streams} streams left: blocks free and told so", f"within {seconds:.1f} s"
        case {"side": "gpu processes", "told": told}:
            names = ", ".join(one.split(",")[1].split()[0] for one in told)
            return "processes that hold GPU memory while it serves", names

        case {"side": "after the end", "gpu_memory_mib": memory}:
            return "GPU memory in use after the end", f"{memory} MiB"
        case {"side": side, "told": told, "seconds_until_service": seconds, "gpu_memory_mib": memory}:
            codes = ", ".join(f"{code} to {count}" for code, count in told.items())
            until = figure["seconds_until_all_were_told"]
            part = _PARTS[side.split()[0]]
            least = memory["least_meanwhile"]
            return (
                f"{part} killed under {figure['streams']} streams",
                f"{codes} within {until:.2f} s; service after {seconds:.0f} s; {least} MiB held meanwhile",
            )
    return None


def _fronts(run: dict[str, Any]) -> dict[str, float]:
    return {role: value for role, value in run["cpu_us_per_token"].items() if role != "engine core"}


if __name__ == "__main__":
    text = page([json.loads(Path(name).read_bytes()) for name in sys.argv[1:]])
    (ROOT / "docs/performance-gpu.md").write_text(text)
