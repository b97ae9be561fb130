"""`cog-triton plan`: reads the measurement, runs the simulations, reports."""

from __future__ import annotations

import json
import math
import sys
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.output import counted, say, say_json
from cli.plan.curve import Curve
from cli.plan.growth import Pace, Start, after_a_jump, fastest_doubling
from cli.plan.sizing import GROUP, Sizing, Wanted
from shared.errors import MeasurementInvalid
from shared.unreadable import reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.plan.sizing import Sized

JUMP = 1.5
_MAX_CHARACTERS = 1 << 26  # a load takes a few kilobytes


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line."""

    measurement: str
    rates: Sequence[float]
    wanted: Wanted
    start: Start
    pace: Pace
    gpus_per_runner: int = 1


def plan(asked: Asked, *, as_json: bool) -> int:
    """Report it. The exit status is 1 when nothing meets the objectives. Raises MeasurementInvalid."""
    curve = read(asked.measurement)
    sizing = Sizing(curve, asked.wanted)
    possible = sizing.possible()
    found = [_rate(asked, sizing.size(rate)) for rate in asked.rates] if possible else []
    result = {
        "runner": {
            "least_streams": curve.points[0].streams,
            "most_streams": curve.most_streams,
            "output_tokens": curve.output_tokens,
            "requests_per_second": curve.requests_per_second,
        },
        "objectives": {name: limit * 1000 for name, limit in asked.wanted.objectives.limits.items()},
        "share": asked.wanted.share,
        "balance": asked.wanted.balance,
        "start_seconds": {**asdict(asked.start), "cold": asked.start.cold, "cached": asked.start.cached},
        "possible": possible,
        "rates": found,
    }
    if as_json:
        say_json(result)
    else:
        _tell(result, asked)
    return 0 if possible else 1


def read(measurement: str) -> Curve:
    """The curve that `cog-triton perf --json` wrote; `-` is standard input. Raises MeasurementInvalid."""
    name = "stdin" if measurement == "-" else measurement
    try:
        with nullcontext(sys.stdin) if measurement == "-" else Path(measurement).open() as file:
            text = file.read(_MAX_CHARACTERS)
        return Curve.of(json.loads(text), name)
    except OSError as problem:
        reason = reason_of(problem)
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except RecursionError:
        reason = "it is not JSON, or nested too deeply"
    except json.JSONDecodeError as problem:
        reason = f"it is not JSON, as line {problem.lineno} shows"
    except ValueError:  # what Python refuses to read
        reason = "a number in it has too many digits"
    raise MeasurementInvalid(measurement=name, reason=reason)


def _rate(asked: Asked, sized: Sized) -> dict[str, Any]:
    return {
        "requests_per_second": sized.rate,
        "runners": sized.runners,
        "gpus": sized.runners * asked.gpus_per_runner,
        "with_reserve": math.ceil(sized.runners * (1 + asked.pace.reserve)),
        "utilization": sized.utilization,
        "good": sized.good,
        "time_to_first_token_p99": sized.first_token_p99 * 1000,
        "request_latency_p99": sized.latency_p99 * 1000,
        "growth": {
            name: _growth(asked, sized.rate, sized.runner_rate, seconds)
            for name, seconds in (("cold", asked.start.cold), ("cached", asked.start.cached))
        },
    }


def _growth(asked: Asked, rate: float, runner_rate: float, seconds: float) -> dict[str, Any]:
    minutes = fastest_doubling(rate=rate, runner_rate=runner_rate, start_seconds=seconds, pace=asked.pace)
    jump = after_a_jump(rate=rate, by=JUMP, runner_rate=runner_rate, start_seconds=seconds, pace=asked.pace)
    return {"start_seconds": seconds, "doubles_in_minutes": minutes, f"jump_by_{JUMP:g}": asdict(jump)}


def _tell(result: dict[str, Any], asked: Asked) -> None:
    runner = result["runner"]
    say(
        f"A runner: up to {counted(runner['most_streams'], 'stream')} as measured, at most"
        f" {runner['requests_per_second']:.3g} requests/s of {counted(runner['output_tokens'], 'token')}."
    )
    if not result["possible"]:
        least = runner["least_streams"]
        way = "no number of runners meets them" if least == 1 else "measure lighter loads, from 1 stream on"
        say(f"Already at {counted(least, 'stream')}, too many requests miss the objectives: {way}.")
        return
    start = asked.start
    for found in result["rates"]:
        rate = found["requests_per_second"]
        say("")
        say(
            f"{rate:,g} requests/s: {counted(found['runners'], 'runner')}, {counted(found['gpus'], 'GPU')}"
            f" ({counted(found['with_reserve'], 'runner')} with {asked.pace.reserve:.0%} in reserve)"
        )
        say(
            f"  {found['utilization']:.0%} of their capacity; p99: first token"
            f" {found['time_to_first_token_p99']:,.0f} ms, whole answer"
            f" {found['request_latency_p99']:,.0f} ms; {found['good']:.1%} meet the objectives"
        )
        if not start.cold:
            continue
        for name, words in (("cold", "starts from nothing"), ("cached", "starts from the cache")):
            growth = found["growth"][name]
            minutes, jump = growth["doubles_in_minutes"], growth[f"jump_by_{JUMP:g}"]
            doubles = "cannot double in a day" if minutes is None else f"can double in {minutes:g} min"
            say(
                f"  {words} ({growth['start_seconds']:g} s): the load {doubles};"
                f" {JUMP:g} times as much at once: too few runners for {jump['seconds']:,.0f} s,"
                f" {jump['requests']:,.0f} requests without a place"
            )
    if any(found["runners"] > GROUP for found in result["rates"]):
        say(f"\nMore than {GROUP} runners are calculated as groups of {GROUP}.")
