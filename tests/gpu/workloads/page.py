"""docs/performance-loads.md from the reports in reports/: `python -m tests.gpu.workloads.page`

Each is what a call of `tests.gpu.workloads` wrote.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/performance-loads.md"
REPORTS = Path(__file__).parent / "reports"
SIDES = {
    "runner, openai": "cog-triton, OpenAI's API",
    "runner, cog": "cog-triton, Cog's API",
    "serve_rust": "`vllm serve`, Rust front",
    "async_llm": "vLLM's engine, no server",
}
_PEER = "serve_rust"
_OURS = ("runner, openai", "runner, cog")
_LEAST = 1.05  # closer figures are the same within noise
_INTRO = """\
# On a GPU, with loads as real clients make them

Made by `python -m tests.gpu.workloads.page` from the reports of `python -m tests.gpu.workloads`.

- Model: the shape of Llama 3 8B with random weights, bf16, and a real byte-level BPE tokenizer of 131,072 tokens.
- Engine arguments of every side: max_num_seqs 2048, steps of 8,192 tokens, max_model_len 8448, prefix caching on.
- First token: milliseconds from when the request was due to its first text, p50 / p99.
- CPU: microseconds per token of all processes except vLLM's engine core.
- **Bold**: cog-triton is more than 5% worse than `vllm serve` here.
- The engine without a server does no templates, tokenizing or text: read it as a bound.

"""

Figure = dict[str, Any]


def page(reports: Iterable[Sequence[Figure]]) -> str:
    """The text of the page: a section for each machine."""
    return _INTRO + "\n".join(_section(report) for report in reports)


def _section(report: Sequence[Figure]) -> str:
    machine = next(figure for figure in report if figure["side"] == "machine")
    head = (
        f"## {machine['gpu_and_driver']}, {machine['date']}\n\n"
        f"vLLM {machine['vllm']}, PyTorch {machine['torch']}, Python {machine['python']}, {machine['cores']} cores.\n"
    )
    loads = list(dict.fromkeys(figure["load"] for figure in report if "load" in figure))
    return "\n".join([head, *(_of_load(report, load) for load in loads), _others(report)])


def _of_load(report: Sequence[Figure], load: str) -> str:
    found = {figure["side"]: figure for figure in report if figure.get("load") == load}
    title = next(iter(found.values()))["title"]
    turns = load == "chats"
    head = ["", "tokens/s", "first token", "CPU", "lost", *(["first token by turn, p50"] if turns else [])]
    rows = [head]
    peer = found.get(_PEER)
    for side, name in SIDES.items():
        if (figure := found.get(side)) is None:
            continue
        ours = side in _OURS and peer is not None
        first = " / ".join(
            _worse(
                f"{figure['first'][key]:,.0f}",
                figure,
                peer if ours else None,
                lambda one, k=key: one["first"][k],
            )
            for key in ("p50", "p99")
        )
        rate = _worse(
            f"{figure['tokens_per_second']:,.0f}",
            figure,
            peer if ours else None,
            lambda one: 1 / max(one["tokens_per_second"], 1e-9),
        )
        cpu = _worse(f"{_cpu(figure):.0f}", figure, peer if ours else None, _cpu)
        row = [name, rate, first, cpu, str(figure["not_whole"])]
        if turns:
            row.append(" ".join(f"{value:.0f}" for value in figure["first_by_turn"].values()))
        rows.append(row)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(
        [f"### {title[0].upper()}{title[1:]}\n", lines[0], "|---" * len(head) + "|", *lines[1:], ""]
    )


def _worse(text: str, figure: Figure, peer: Figure | None, value: Callable[[Figure], float]) -> str:
    """Bold where ours is worse than the peer's."""
    return f"**{text}**" if peer is not None and value(figure) > _LEAST * value(peer) else text


def _cpu(figure: Figure) -> float:
    used: dict[str, float] = figure["cpu_us_per_token"]
    return sum(value for role, value in used.items() if role not in ("engine core", "workers"))


def _others(report: Sequence[Figure]) -> str:
    """Starts, deaths of the core, and whether the peer was at its best."""
    lines = []
    for figure in report:
        side, _, what = figure["side"].rpartition(", ")
        name = SIDES.get(side) or {"runner": "cog-triton"}.get(side, side)
        if what == "start":
            lines.append(f"- Start to ready, {name}: {figure['seconds']:.0f} s.")
        elif what == "core killed":
            again = figure["serves_again_seconds"]
            after = "does not serve again" if again is None else f"serves again after {again:.0f} s"
            lines.append(
                f"- The engine core is killed under {figure['streams']} streams, {name}: all have ended after"
                f" {figure['ended_seconds']:.1f} s; it {after}."
            )
        elif what == "fallbacks in its log":
            lines.append(f"- Warnings of slow paths in the log of {name}: {figure['lines'] or 'none'}.")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.workloads.page", description=__doc__)
    parser.parse_args()
    reports = [json.loads(path.read_text()) for path in sorted(REPORTS.glob("*.json"))]
    PAGE.write_text(page(reports), encoding="utf-8")


if __name__ == "__main__":
    main()
