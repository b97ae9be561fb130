"""The charts of a report, as SVG inside the page: pygal draws them, and no script is needed."""

from __future__ import annotations

import math
import re
import sys
from html import escape
from typing import TYPE_CHECKING, Any

import pygal
from pygal.style import Style

from cli.perf.findings import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# pygal leaves a finder of plug-ins behind, of a kind that Python warns about at each later import.
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "pygal"]

_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#0891b2", "#be185d", "#4d7c0f", "#57534e")
_RED = "#dc2626"
_MAX_SHOWN = 6  # lines of one chart
_UNSEEN = re.compile(r"<\?xml[^>]*\?>\s*|<!--.*?-->|<script.*?</script>", re.DOTALL)
_SHARES = (0, 1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 100)


def _settings(title: str, x: str, y: str, colours: Sequence[str] = _COLOURS, **more: Any) -> dict[str, Any]:
    style = Style(
        background="transparent",
        plot_background="transparent",
        foreground="#44403c",
        foreground_strong="#1c1917",
        foreground_subtle="#78716c",
        font_family="system-ui, sans-serif",
        title_font_size=19,
        label_font_size=13,
        major_label_font_size=13,
        legend_font_size=14,
        value_font_size=13,
        value_label_font_size=13,
        opacity=".25",
        opacity_hover=".5",
        stroke_width=2.5,
        guide_stroke_color="#d6d3d1",
        major_guide_stroke_color="#d6d3d1",
        colors=tuple(colours),
    )
    return {
        "style": style,
        "title": title,
        "x_title": x,
        "y_title": y,
        "width": 640,
        "height": 400,
        "js": [],
        "show_x_guides": False,
        "show_legend": False,  # the page has one: pygal's is cut off when it needs several lines
        "dots_size": 3,
        "truncate_label": -1,
        "margin": 12,
        "margin_right": 28,
        "no_data_text": "nothing arrived",
        **more,
    }


def _drawn(chart: Any, names: Sequence[str], colours: Sequence[str] = _COLOURS) -> str:
    """The chart, and which colour means what."""
    svg = _UNSEEN.sub("", chart.render(is_unicode=True))
    marks = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>'
        for name, colour in zip(names, colours, strict=False)
    )
    return f"{svg}<figcaption>{marks}</figcaption>"


def _round_steps(most: float) -> list[float]:
    """Some five round numbers from 0 to beyond `most`."""
    rough = max(most, 1e-9) / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [step * number for number in range(math.ceil(most / step) + 1)]


def throughput_and_latency(steps: Sequence[dict[str, Any]]) -> str:
    """The sweep: how long a first token takes against how many tokens come, at each load."""
    chart = pygal.XY(
        **_settings(
            "Throughput against latency",
            "tokens/s; the load is next to the points",
            "time to first token",
            value_formatter=milliseconds,
            x_value_formatter=_number,
            print_labels=True,
            print_values=False,
            include_x_axis=True,
        )
    )
    answered = [step for step in steps if step["time_to_first_token"]]
    ticks = _round_steps(max(step["output_token_throughput"] for step in answered) * 1.05)
    chart.x_labels, chart.xrange = ticks, (0, ticks[-1])
    waits = _round_steps(max(step["time_to_first_token"]["p99"] for step in answered))
    # Room below the lowest points for the text beside them.
    chart.y_labels, chart.range = waits, (-waits[-1] / 12, waits[-1])
    names = ("p50", "p99")
    for share in names:
        chart.add(
            share,
            [
                {
                    "value": (step["output_token_throughput"], step["time_to_first_token"][share]),
                    "label": _short(step) if share == "p99" else "",
                }
                for step in answered
            ],
        )
    return _drawn(chart, names)


def distribution(steps: Sequence[dict[str, Any]], metric: str, title: str) -> str:
    """A line for each load: which share of the requests was within which time."""
    chart = pygal.XY(
        **_settings(
            title,
            "share of the requests",
            "within",
            value_formatter=milliseconds,
            x_value_formatter=lambda share: f"{share:.0f}%",
            show_dots=False,
            include_x_axis=True,
        )
    )
    shown = _some([step for step in steps if step[metric]])
    for step in shown:
        cuts = step[metric]["percentiles"]
        chart.add(step["load"], [(share, cuts[share]) for share in _SHARES])
    chart.x_labels = range(0, 101, 20)
    return _drawn(chart, [step["load"] for step in shown])


def timeline(steps: Sequence[dict[str, Any]]) -> str:
    """Tokens a second over all steps, one after another, and the failures."""
    tokens: list[tuple[float, float]] = []
    failures: list[tuple[float, float]] = []
    began = 0.0
    for step in steps:
        line = step["timeline"]
        width = line["slice_seconds"]
        for place, value in enumerate(line["output_token_throughput"]):
            middle = began + (place + 0.5) * width
            tokens.append((middle, value))
            if line["failed"][place]:
                failures.append((middle, line["failed"][place]))
        began += width * len(line["failed"])
    chart = pygal.XY(
        **_settings(
            "Timeline",
            "seconds",
            "tokens/s",
            (_COLOURS[0], _RED),
            x_value_formatter=_number,
            value_formatter=_number,
            show_dots=False,
            fill=True,
            include_x_axis=True,
        )
    )
    chart.add("tokens/s", tokens)
    chart.x_labels = _round_steps(began)
    names = ["tokens/s"]
    if failures:
        # Each at its time, as high as the load: a visible mark, whatever the number.
        top = max((value for _, value in tokens), default=1.0)
        marks = [point for when, _ in failures for point in ((when, 0), (when, top), None)]
        total = sum(number for _, number in failures)
        names.append(f"failed requests: {total:.0f}")
        chart.add(names[-1], marks, allow_interruptions=True, fill=False)
    return _drawn(chart, names, (_COLOURS[0], _RED))


def _some(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of many steps, the first, the last, and some between."""
    if len(steps) <= _MAX_SHOWN:
        return list(steps)
    places = {round(number * (len(steps) - 1) / (_MAX_SHOWN - 1)) for number in range(_MAX_SHOWN)}
    return [steps[place] for place in sorted(places)]


def _short(step: dict[str, Any]) -> str:
    """The number of a load alone."""
    return f"{step['rate'] or step['batch'] or step['concurrency']:g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def all_charts(result: dict[str, Any]) -> list[str]:
    """What a page shows; distributions only for answers that came in events."""
    steps = result["steps"]
    charts: list[Callable[[], str]] = []
    if any(step["time_to_first_token"] for step in steps):
        if len(steps) > 1:
            charts.append(lambda: throughput_and_latency(steps))
        charts.append(lambda: distribution(steps, "time_to_first_token", "Time to first token"))
    if any(step["inter_token_latency"] for step in steps):
        charts.append(lambda: distribution(steps, "inter_token_latency", "Time between tokens"))
    charts.append(lambda: timeline(steps))
    return [draw() for draw in charts]
