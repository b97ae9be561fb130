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
SECONDS = {
    "start": "start to READY, with nothing compiled before",
    "service again after EngineCor was killed": "from SIGKILL of the engine core to service again",
}
INTRO = """\
# On a GPU

Made by `python -m tests.gpu.serving.page` from the reports of one session on one machine: an NVIDIA H200, driver
580.159.04, 16 cores; vLLM 0.26.0, PyTorch 2.11.0+cu130, Python 3.12; 21 November 2026.

A model of the shape of Llama 3 8B with random weights, bf16, 128 tokens in and 256 out, temperature 1, all streams
at once; max_num_seqs 1024, max_num_batched_tokens 8192, no prefix caching, the same for every side. Median of two
to four runs. No request was refused and no token lost on any side. `tests/gpu/serving` is what was run; its
payload left out FlashAttention 2, FlashInfer and what this model does not load.

"""


def table(title: str, figures: dict[tuple[str, int], str], streams: list[int]) -> str:
    head = f"| {title} | " + " | ".join(map(str, streams)) + " |\n|---|" + "---|" * len(streams) + "\n"
    rows = [
        f"| {name} | " + " | ".join(figures.get((side, count), "") for count in streams) + " |\n"
        for side, name in SIDES.items()
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
        "\n| | |\n|---|---|\n",
        *(
            f"| {SECONDS[figure['side']]} | {figure['seconds']:g} s |\n"
            for figure in others
            if "seconds" in figure
        ),
    ]
    return "".join(parts)


def _fronts(run: dict[str, Any]) -> dict[str, float]:
    return {role: value for role, value in run["cpu_us_per_token"].items() if role != "engine core"}


if __name__ == "__main__":
    text = page([json.loads(Path(name).read_bytes()) for name in sys.argv[1:]])
    (ROOT / "docs/performance-gpu.md").write_text(text)
