"""What the checks found: as they run, as JSON, and as text for an issue."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from cli.output import say, say_json
from cli.report_file import write_report
from shared import VERSION
from shared.errors import OutputRefused

from .check import Result, Status, made

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .bench import Bench
    from .check import Check

_COLOURS = {Status.PASSED: "green", Status.FAILED: "red", Status.SKIPPED: "yellow"}
_NAME_WIDTH = 30
_LINE = 400


def acceptance(checks: Sequence[Check], bench: Bench, *, as_json: bool, report: Path | None) -> int:
    """Run the checks one after another; return the exit status: 1 when one failed.

    Raises OutputRefused at the end if the report could not be written then.
    """
    results = []
    unwritten: OutputRefused | None = None
    try:
        for check in checks:
            if not as_json:
                typer.echo(f"{check.name:<{_NAME_WIDTH}} ", nl=False)
            started = time.monotonic()
            result = Result(check, *made(check, bench), seconds=time.monotonic() - started)
            results.append(result)
            if not as_json:
                _say(result)
            if report is not None:
                unwritten = _keep(report, results, bench)
    finally:
        bench.end_server()
    if as_json:
        say_json(document(results, bench))
    else:
        say(_summary(results))
    if unwritten is not None:
        raise unwritten
    return 1 if any(result.status is Status.FAILED for result in results) else 0


def _keep(report: Path, results: Sequence[Result], bench: Bench) -> OutputRefused | None:
    """The results so far: a run that is broken off leaves them. Returns why they could not be written."""
    is_json = report.suffix == ".json"
    text = json.dumps(document(results, bench), indent=2) if is_json else page(results, bench)
    try:
        write_report(report, text)
    except OutputRefused as refused:
        return refused
    return None


def _say(result: Result) -> None:
    say(f"{result.status:<8} {result.seconds:6.1f} s", _COLOURS[result.status])
    if result.status is Status.FAILED:
        say(f"    expected  {result.expected[:_LINE]}")
        say(f"    found     {result.found[:_LINE]}")
        say(f"    assumed   {result.check.assumes}")
        say(f"    source    {result.check.source}")
    else:
        say(f"    {result.found[:_LINE]}")


def document(results: Sequence[Result], bench: Bench) -> dict[str, Any]:
    """For programs, and for --against."""
    return {
        "cog_triton": VERSION,
        "engine": bench.kind,
        "machine": platform.platform(),
        "gpus": bench.gpus,
        "model": str(bench.model),
        "texts": bench.texts,
        "checks": [
            {
                "name": result.check.name,
                "status": result.status,
                "expected": result.expected,
                "found": result.found,
                "assumes": result.check.assumes,
                "source": result.check.source,
                "seconds": round(result.seconds, 1),
            }
            for result in results
        ],
    }


def page(results: Sequence[Result], bench: Bench) -> str:
    """For an issue: what failed first, with the assumption that failed."""
    lines = [
        f"# Acceptance of {bench.title} by cog-triton {VERSION}",
        "",
        f"{platform.platform()}, GPUs: {bench.gpus}, model {bench.model}: {_summary(results)}",
    ]
    for result in results:
        if result.status is Status.FAILED:
            lines += [
                "",
                f"## {result.check.name}",
                "",
                f"- assumed: {result.check.assumes}",
                f"- source: {result.check.source}",
                f"- expected: `{result.expected}`",
                f"- found: `{result.found}`",
            ]
    lines += ["", "| check | | found | s |", "|---|---|---|---|"]
    for result in results:
        found = result.found[:_LINE].replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {result.check.name} | {result.status} | {found} | {result.seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _summary(results: Sequence[Result]) -> str:
    counts = Counter(result.status for result in results)
    return ", ".join(f"{counts[status]} {status}" for status in Status)
