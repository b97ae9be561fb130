"""What people see of a load: its progress while it runs, and tables at the end."""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from cli.output import counted
from cli.perf.findings import milliseconds, words

if TYPE_CHECKING:
    from cli.perf.load import Load

_EVERY = 0.5  # s: drawing takes time from the streams
_METRICS = ("time_to_first_token", "inter_token_latency", "request_latency")
_SHOWN_SHARES = ("p50", "p90", "p99")


class Live:
    """A line on stderr that shows a step's progress."""

    def __init__(self) -> None:
        self._live = RichLive(console=Console(stderr=True), auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    async def follow(self, load: Load) -> None:
        """Show it until cancelled."""
        seen = tokens = failed = 0
        began = time.perf_counter()
        while True:
            await asyncio.sleep(_EVERY)
            # Those before have ended; in a long run not all are examined each time.
            for request in islice(load.requests, seen, None):
                if not request.ended:
                    break
                seen, tokens = seen + 1, tokens + request.token_count
                failed += request.failure is not None
            running = islice(load.requests, seen, None)
            now = tokens + sum(len(request.events) for request in running)
            elapsed = time.perf_counter() - began
            line = (
                f"{load.step.label}: {elapsed:.0f} of {load.step.seconds:g} s, {len(load.requests)} sent,"
                f" {load.running} in progress, {now:,} tokens, {now / elapsed:,.0f} tokens/s"
            )
            text = Text(line)
            if failed:
                text.append(f", {failed} failed", style="red")
            self._live.update(text, refresh=True)


def print_report(result: dict[str, Any]) -> None:
    """The result on stdout."""
    console = Console(highlight=False, markup=False)  # [fd00::1] in an address is not a style
    steps = result["steps"]
    tokens = counted(result["asked"]["output_tokens"], "token")
    console.print(f"{result['url']}, asked through {result['api']} for {tokens}")
    console.print()
    console.print(Text(result["sentence"], style="bold"))
    for finding in result["findings"]:
        console.print(Text(f"{finding['kind']}: {finding['text']}", style="red"))
    console.print()
    console.print(_table(result))
    for step in steps:
        if step["server"]:
            console.print(_beside(step))
    lag = max(steps, key=lambda step: step["client"]["lag"]["p99"])["client"]
    events = max(step["client"]["events_per_second"] for step in steps)
    cpu = max(step["client"]["cpu"] for step in steps)
    console.print(
        f"This client: lag p50 {milliseconds(lag['lag']['p50'])}, p99 {milliseconds(lag['lag']['p99'])};"
        f" at most {events:,.0f} events/s and {cpu:.0%} of a core."
    )


def _table(result: dict[str, Any]) -> Table:
    steps = result["steps"]
    table = Table(title="What the client saw")
    table.add_column()
    for step in steps:
        table.add_column(step["load"], justify="right")

    def row(name: str, cells: list[str]) -> None:
        if any(cell != "-" for cell in cells):
            table.add_row(name, *cells)

    for metric in _METRICS:
        for share in _SHOWN_SHARES:
            cells = [milliseconds(step[metric][share]) if step[metric] else "-" for step in steps]
            row(f"{words(metric)} {share}", cells)
    row("output token throughput (tokens/s)", [f"{step['output_token_throughput']:,.1f}" for step in steps])
    users = [step["output_token_throughput_per_user"] for step in steps]
    row("  per stream p50 (tokens/s)", [f"{user['p50']:,.1f}" if user else "-" for user in users])
    expected = result["asked"]["tokens_per_second"]
    if expected is not None:
        row("  expected per stream (tokens/s)", [f"{expected:,.1f}"] * len(steps))
    row("request throughput (requests/s)", [f"{step['request_throughput']:,.2f}" for step in steps])
    goods = [step["goodput"] for step in steps]
    row("goodput (requests/s)", ["-" if good is None else f"{good:,.2f}" for good in goods])
    row("in progress, mean / most", [f"{one['mean']:.1f} / {one['max']}" for one in _all(steps, "in_flight")])
    counts = _all(steps, "requests")
    row("requests sent", [_beside_expected(one["sent"], one["expected"]) for one in counts])
    row("requests failed", [str(one["failed"]) for one in counts])
    tokens = _all(steps, "tokens")
    row("tokens", [_beside_expected(one["actual"], one["expected"]) for one in tokens])
    row("tokens lost", ["-" if one["lost"] is None else str(one["lost"]) for one in tokens])
    for code in sorted({code for step in steps for code in step["failures"]}):
        row(f"  {code}", [str(step["failures"].get(code, {"count": 0})["count"]) for step in steps])
    return table


def _beside(step: dict[str, Any]) -> Table:
    view = step["server"]
    table = Table(title=f"What the server reports, compared with the client, at {step['load']}")
    for heading in ("", "server avg", "client avg", "server p99", "client p99"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in (*_METRICS, "queue_time"):
        server, seen = view.get(name), step.get(name)
        if server:
            cells = []
            for share in ("avg", "p99"):
                cells += [milliseconds(server[share]), milliseconds(seen[share]) if seen else "-"]
            table.add_row(words(name), *cells)
    counts = [
        counted(round(view[name]), words(name).removesuffix("s"))
        for name in ("requests", "output_tokens", "errors", "engine_restarts")
        if name in view
    ]
    if "most_waiting" in view:
        counts.append(f"at most {view['most_waiting']:,.0f} waiting")
    table.caption = "counted by the server: " + ", ".join(counts)
    return table


def _all(steps: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [step[name] for step in steps]


def _beside_expected(actual: int, expected: int | None) -> str:
    return str(actual) if expected is None or expected == actual else f"{actual} of {expected}"
