"""The options of `cog-triton perf`, made into a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import typer

from cli.perf.command import Plan
from cli.perf.plan import MAX_CONCURRENCY, Objectives, Prompts, Step
from cli.perf.targets import Ask

if TYPE_CHECKING:
    from pathlib import Path

    from cli.perf.plan import Arrivals
    from cli.perf.targets import TargetName

_SWEEP = "1,8,64"


def plan_of(
    url: str,
    *,
    target: TargetName | None,
    model: str | None,
    concurrency: str | None,
    rate: float | None,
    unit: Literal["rps", "batch"],
    arrivals: Arrivals,
    duration: float,
    requests: int | None,
    input_tokens: int,
    output_tokens: int,
    tokens_per_second: float | None,
    prompts: Path | None,
    output_method: Literal["yield", "wait"],
    objectives: str | None,
    stall_seconds: float,
    metrics_url: str | None,
    report: Path | None,
) -> Plan:
    """Raises typer.BadParameter for options that contradict each other."""
    if rate is not None and concurrency is not None:
        raise typer.BadParameter("a load has a rate or a concurrency, not both", param_hint="--rate")
    if rate is None and unit == "batch":
        raise typer.BadParameter("a batch needs --rate: how many at the same time", param_hint="--unit")
    if rate is not None and unit == "rps":
        steps = [Step(duration, rate=rate, arrivals=arrivals, most=requests)]
    elif rate is not None:
        if rate < 1:
            raise typer.BadParameter("for a batch it must be at least 1", param_hint="--rate")
        steps = [Step(duration, batch=int(rate), most=requests)]
    else:
        numbers = _numbers(_SWEEP if concurrency is None else concurrency)
        steps = [Step(duration, concurrency=number, most=requests) for number in numbers]
    return Plan(
        url=url,
        steps=steps,
        prompts=_prompts(prompts, input_tokens),
        ask=Ask(output_tokens, stream=output_method == "yield", tokens_per_second=tokens_per_second),
        target=target,
        model=model,
        objectives=_objectives(objectives),
        stall_seconds=stall_seconds,
        metrics_url=metrics_url,
        report=report,
    )


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(one) for one in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{text!r} is not a list such as 1,8,64", param_hint="--concurrency")
    if max(numbers) > MAX_CONCURRENCY:
        raise typer.BadParameter(f"the most is {MAX_CONCURRENCY}", param_hint="--concurrency")
    return numbers


def _prompts(path: Path | None, words: int) -> Prompts:
    if path is None:
        return Prompts(words=words)
    try:
        return Prompts.of_file(path)
    except OSError as error:
        reason = str(error.strerror)
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except ValueError as error:
        reason = str(error)
    raise typer.BadParameter(f"{path}: {reason}", param_hint="--prompts")


def _objectives(text: str | None) -> Objectives:
    if text is None:
        return Objectives()
    try:
        return Objectives.of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--slo") from None
