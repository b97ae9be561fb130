"""The report as one HTML file: it opens from disk, and fetches nothing from the network."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from cli.output import counted
from cli.perf.charts import all_charts
from cli.perf.findings import milliseconds, words
from cli.report_file import write_report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_STYLE = """
:root { color-scheme: light }
body { font: 16px/1.45 system-ui, sans-serif; color: #1c1917; background: #fafaf9; margin: 0 auto;
  max-width: 1340px; padding: 1rem }
h1 { font-size: 1rem; font-weight: 400; color: #57534e; margin: 0; overflow-wrap: anywhere }
.sentence { font-size: 1.6rem; line-height: 1.25; font-weight: 650; margin: .4rem 0 1rem }
.findings { list-style: none; padding: 0; margin: 0 0 1rem; display: grid; gap: .4rem }
.findings li { background: #fef2f2; border-left: 4px solid #dc2626; padding: .45rem .75rem }
.findings li.good { background: #f0fdf4; border-color: #16a34a }
.findings b { display: inline-block }
.findings b::first-letter { text-transform: uppercase }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem }
figure { margin: 0; background: #fff; border: 1px solid #e7e5e4; border-radius: 6px }
figure svg { display: block; width: 100%; height: auto }
figcaption { display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0 1rem .6rem; font-size: .9rem }
figcaption i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px }
section { overflow-x: auto; margin: 1.2rem 0 }
h2 { font-size: 1.1rem; margin: 0 0 .4rem }
table { border-collapse: collapse; background: #fff; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .7rem; border: 1px solid #e7e5e4; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
td.slow { background: #fee2e2; font-weight: 650 }
footer { color: #57534e; font-size: .85rem; overflow-wrap: anywhere }
@media (max-width: 40rem) { .sentence { font-size: 1.3rem } body { padding: .7rem } }
"""
_GROWN = 2.0  # times the best of its row: marked


def write_page(result: dict[str, Any], path: Path) -> None:
    """Write the page of a result, as --json has it. Raises OutputRefused."""
    asked = result["asked"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(result['url'])}: cog-triton perf</title><style>{_STYLE}</style>",
        f"<h1>{escape(result['url'])}, asked through {escape(result['api'])}",
        f"for {counted(asked['output_tokens'], 'token')}, {escape(result['date'])}</h1>",
        f'<p class="sentence">{escape(result["sentence"])}</p>',
        _findings(result),
        '<div class="charts">',
        *(f"<figure>{chart}</figure>" for chart in all_charts(result)),
        "</div>",
        _figures(result),
        _server(result["steps"]),
        _client(result["steps"]),
        f"<footer>cog-triton {escape(result['cog_triton'])}, on {escape(result['machine']['system'])} with",
        f"{counted(result['machine']['cores'], 'core')}: <code>{escape(result['command'])}</code></footer>",
    ]
    write_report(path, "\n".join(parts) + "\n")


def _findings(result: dict[str, Any]) -> str:
    items = [f"<li><b>{escape(one['kind'])}</b>: {escape(one['text'])}</li>" for one in result["findings"]]
    if not items:
        items = [f'<li class="good">{_nothing_found(result["steps"])}</li>']
    return f'<ul class="findings">{"".join(items)}</ul>'


def _nothing_found(steps: list[dict[str, Any]]) -> str:
    """What was looked for: without a stream or a count, some things cannot be seen."""
    absent = ["no failures"]
    if all(step["time_to_first_token"] is not None for step in steps):
        absent += ["no stalls", "no late first tokens"]
    if all(step["tokens"]["lost"] is not None for step in steps):
        absent.append("no lost tokens")
    return f"{', '.join(absent).capitalize()}."


def _figures(result: dict[str, Any]) -> str:
    steps = result["steps"]
    rows = []
    for metric in ("time_to_first_token", "inter_token_latency", "request_latency"):
        for share in ("p50", "p90", "p99"):
            values = [step[metric][share] if step[metric] else None for step in steps]
            rows.append(_row(f"{words(metric)} {share}", values))
    rates: list[tuple[str, list[Any], str]] = [
        ("output token throughput, tokens/s", [step["output_token_throughput"] for step in steps], ",.1f"),
        (
            "per stream p50, tokens/s",
            [(step["output_token_throughput_per_user"] or {}).get("p50") for step in steps],
            ",.1f",
        ),
        ("expected per stream, tokens/s", [result["asked"]["tokens_per_second"]] * len(steps), ",.1f"),
        ("request throughput, requests/s", [step["request_throughput"] for step in steps], ",.2f"),
        ("goodput, requests/s", [step["goodput"] for step in steps], ",.2f"),
        ("requests in progress, mean", [step["in_flight"]["mean"] for step in steps], ",.1f"),
        ("requests expected", [step["requests"]["expected"] for step in steps], ",d"),
        ("requests sent", [step["requests"]["sent"] for step in steps], ",d"),
        ("requests failed", [step["requests"]["failed"] for step in steps], ",d"),
        ("tokens expected", [step["tokens"]["expected"] for step in steps], ",d"),
        ("tokens received", [step["tokens"]["actual"] for step in steps], ",d"),
        ("tokens lost", [step["tokens"]["lost"] for step in steps], ",d"),
    ]
    for name, values, form in rates:
        if any(value is not None for value in values):
            cells = ["-" if value is None else format(value, form) for value in values]
            rows.append(_cells(name, cells))
    return _table("What the client saw", ["", *(step["load"] for step in steps)], rows)


def _row(name: str, values: list[float | None]) -> str:
    """A row of times; those far above the best of the row are marked."""
    best = min((value for value in values if value is not None), default=0.0)
    cells = []
    for value in values:
        slow = value is not None and len(values) > 1 and value >= _GROWN * best and value - best >= 1
        text = "-" if value is None else milliseconds(value)
        cells.append(f'<td class="slow">{text}</td>' if slow else f"<td>{text}</td>")
    return f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>"


def _server(steps: Sequence[dict[str, Any]]) -> str:
    rows = []
    for step in steps:
        view = step["server"] or {}
        for metric in ("time_to_first_token", "inter_token_latency", "request_latency", "queue_time"):
            server, seen = view.get(metric), step.get(metric)
            if server:
                cells = []
                for share in ("avg", "p99"):
                    cells += [milliseconds(server[share]), milliseconds(seen[share]) if seen else "-"]
                rows.append(_cells(step["load"], [words(metric), *cells]))
    if not rows:
        return ""
    headings = ["", "", "server avg", "client avg", "server p99", "client p99"]
    return _table("What the server reports, compared with the client", headings, rows)


def _client(steps: Sequence[dict[str, Any]]) -> str:
    rows = [
        _cells(
            step["load"],
            [
                milliseconds(step["client"]["lag"]["p50"]),
                milliseconds(step["client"]["lag"]["p99"]),
                milliseconds((step["client"]["send_lag"] or {"p99": 0.0})["p99"]),
                f"{step['client']['events_per_second']:,.0f}",
                f"{step['client']['cpu']:.0%}",
                "yes" if step["client"]["lagged"] else "no",
            ],
        )
        for step in steps
    ]
    headings = ["", "lag p50", "lag p99", "sent late p99", "events/s", "of a core", "lagged"]
    return _table("This client itself", headings, rows)


def _cells(name: str, cells: Sequence[str]) -> str:
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _table(title: str, headings: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    return f"<section><h2>{escape(title)}</h2><table><tr>{head}</tr>{''.join(rows)}</table></section>"
