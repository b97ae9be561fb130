"""The run of `cog-triton perf`: reach the server, hold each step of the load, and report the result."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import signal
import sys
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cli.output import say, say_json
from cli.perf import findings
from cli.perf.address import parsed
from cli.perf.figures import count_text, figures
from cli.perf.load import Load, Runner, open_files
from cli.perf.plan import Objectives
from cli.perf.reach import kind_of, metrics_address, model_of, reach
from cli.perf.server_view import ServerView
from cli.perf.targets import server_key, triton_model
from cli.perf.terminal import Live, print_report
from cli.report_file import check_report
from shared import VERSION
from shared.errors import OutputRefused, ServerNotMeasured
from shared.secrets import public_address, public_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.perf.plan import Prompts, Step
    from cli.perf.request import Request
    from cli.perf.targets import Ask, Target, TargetName


_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class Plan:
    """What was asked for on the command line."""

    url: str
    steps: Sequence[Step]
    prompts: Prompts
    ask: Ask
    target: TargetName | None = None
    model: str | None = None
    objectives: Objectives = Objectives()  # noqa: RUF009 - it does not change
    stall_seconds: float = 60.0
    metrics_url: str | None = None
    report: Path | None = None


def perf(plan: Plan, *, as_json: bool) -> int:
    """Run it and report; the exit status: 1 when no request was answered or the page cannot
    be written, 130 after Ctrl-C.

    Raises OutputRefused for a page that could not be written, ServerNotMeasured, and KeyboardInterrupt when
    Ctrl-C comes before the first load or twice.
    """
    import uvloop

    if plan.report is not None:
        check_report(plan.report)
    with open_files():
        result = uvloop.run(measured(plan))
    if as_json:
        say_json(result)
    else:
        print_report(result)
    if plan.report is not None and not _write(result, plan.report, quiet=as_json):
        return 1
    if result["interrupted"]:
        return _INTERRUPTED
    return 0 if any(step["requests"]["succeeded"] for step in result["steps"]) else 1


def _write(result: dict[str, Any], report: Path, *, quiet: bool) -> bool:
    from cli.perf.page import write_page

    try:
        write_page(result, report)
    except OutputRefused as error:  # the figures have been printed: they are not lost
        say(str(error), "red", err=True)
        return False
    if not quiet:
        say(f"{report}: the same report, for a browser")
    return True


async def measured(plan: Plan) -> dict[str, Any]:
    """All that is known of a run, as --json prints it; after Ctrl-C, which cancels this, of what was run.

    Raises ServerNotMeasured.
    """
    url = parsed(plan.url)
    metrics = metrics_address(url, plan.metrics_url)
    name = await kind_of(url, plan.target)
    # The key goes to the server that is asked, or to where the user says that its metrics are; a user in an
    # address only there.
    key = server_key(name, urlsplit(metrics)) if metrics else None
    if metrics and plan.metrics_url and (reason := await ServerView(metrics, key=key).why_absent()):
        raise ServerNotMeasured(url=public_address(metrics), reason=reason)
    model = plan.model
    if name == "openai" and model is None:
        model = await model_of(url)
    target, warm_up = await reach(name, url, model, plan.ask, plan.stall_seconds)
    counted = triton_model(url, model) if name == "triton" else None
    predictable = name == "mock"
    loads: list[Load] = []
    steps: list[dict[str, Any]] = []
    interrupted: list[findings.Finding] = []
    with Live() if sys.stderr.isatty() else nullcontext() as live:
        for step in plan.steps:
            load = Load(step)
            view = ServerView(metrics, counted, key) if metrics else None
            try:
                await _hold(load, plan, target, view, live, predictable=predictable)
            except asyncio.CancelledError:
                if not load.requests and not loads:
                    raise
                _go_on()
                interrupted.append(findings.of_interruption(load, len(plan.steps) - len(loads) - 1))
                if not load.requests:
                    break
            loads.append(load)
            found = figures(
                load,
                asked_tokens=plan.ask.output_tokens,
                predictable=predictable,
                objectives=plan.objectives,
            )
            steps.append(found | {"server": await view.end() if view else None})
            if interrupted:
                break
    await target.close()
    return {
        "cog_triton": VERSION,
        "url": public_address(plan.url),
        "target": name,
        "api": target.name,
        "model": model,
        "command": shlex.join(["cog-triton", *map(public_text, sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "cores": os.cpu_count()},
        "asked": {
            "output_tokens": plan.ask.output_tokens,
            "exact": target.ask.exact,
            "stream": plan.ask.stream,
            "tokens_per_second": plan.ask.tokens_per_second,
            "objectives": {key: value * 1000 for key, value in plan.objectives.limits.items()},
        },
        "interrupted": bool(interrupted),
        "sentence": findings.sentence(steps),
        "findings": [
            one.view()
            for one in [
                *interrupted,
                *findings.of_requests(loads, warm_up),
                *findings.of_steps(steps, plan.objectives.limits),
            ]
        ],
        "steps": steps,
    }


def _go_on() -> None:
    """Continue in spite of Ctrl-C; the next one ends everything at once."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


async def _hold(
    load: Load,
    plan: Plan,
    target: Target,
    view: ServerView | None,
    live: Live | None,
    *,
    predictable: bool,
) -> None:
    def ended(request: Request) -> None:
        if predictable and request.is_good:
            count_text(request, plan.ask.output_tokens)
        request.pieces.clear()

    runner = Runner(target, plan.prompts, stall_seconds=plan.stall_seconds, on_end=ended)
    helpers: list[asyncio.Task[None]] = []
    if view is not None:
        await view.begin()
        helpers.append(asyncio.create_task(view.watch()))
    if live is not None:
        helpers.append(asyncio.create_task(live.follow(load)))
    try:
        await runner.run(load)
    finally:
        for helper in helpers:
            helper.cancel()
            with suppress(asyncio.CancelledError):
                await helper
