"""Draws charts as SVG: `.build/bench/bin/python tests/performance/plots.py FOLDER < charts.json`.

In the environment of requirements/bench.txt, which has matplotlib. The same figures make the same bytes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt

_STYLE = {
    "svg.hashsalt": "cog-triton",  # no names that change from run to run
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
}


def draw(chart: dict[str, Any], path: Path) -> None:
    """Write one chart to `path`."""
    bars, lines = chart["bars"], chart["lines"]
    height = 1.2 + 0.4 * len(bars) if bars else 3.4
    figure, axes = plt.subplots(figsize=(7, height), layout="constrained")
    if bars:
        drawn = axes.barh(list(bars), list(bars.values()))
        axes.bar_label(drawn, fmt="%.3g", padding=3)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), label=name, marker="o" if len(points) < 20 else "")
    if lines:
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False)
    if chart["logarithmic"]:
        axes.set_xscale("log")
        ticks = sorted({x for points in lines.values() for x, _ in points})
        axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axes.minorticks_off()
    axes.set_title(chart["title"], loc="left", fontsize=11)
    axes.set_xlabel(chart["x_label"])
    axes.set_ylabel(chart["y_label"])
    # White, so that it can be read on a dark page too.
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    plt.close(figure)


def main() -> None:
    """Draw what arrives on standard input into the folder."""
    plt.rcParams.update(_STYLE)
    for chart in json.load(sys.stdin):
        draw(chart, Path(sys.argv[1], f"{chart['name']}.svg"))


if __name__ == "__main__":
    main()
