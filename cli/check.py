"""`cog-triton check`: what is wrong with a config, or with what is served, and roughly what that takes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from builder.check.memory import needs
from builder.check.model import check_on_hub, models_in
from builder.findings import Findings, Severity
from cli.checked import report_on
from cli.output import counted, say, say_json
from shared.config import OfficialConfig, VLLMConfig
from shared.config.problems import not_among
from shared.config.vllm import GPUS
from shared.errors import ConfigValueInvalid

if TYPE_CHECKING:
    from builder.check.report import Report

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def check(source: str, *, as_json: bool, gpus: int | None, gpu: str | None, token: str | None) -> int:
    """Print the report on what is at `source`; return the exit status: 1 when there are errors.

    `gpu` takes precedence over the one in a config of vLLM. Raises ConfigValueInvalid for an unknown one.
    """
    report = report_on(source, gpus)
    if gpu not in (None, *GPUS):
        raise ConfigValueInvalid(key="--gpu", problem=not_among(list(GPUS), gpu))
    if gpu is not None and isinstance(report.config, VLLMConfig):
        report = replace(report, config=report.config.model_copy(update={"gpu": gpu}))
    findings = Findings()
    unreached = None if report.errors else _look_at_hub(report, token, findings)
    known = not (report.errors or findings.errors or unreached)
    needed, why_not = needs(report, token, findings) if known else (None, None)
    report = report.with_findings(findings)
    if as_json:
        more = {"estimate": asdict(needed) if needed else None, "not_estimated": why_not}
        say_json(report.as_json() | more | {"hub_not_reached": unreached})
    else:
        for one in report.diagnostics:
            say(str(one), _COLOURS[one.severity])
        if needed is not None:
            say(f"{report.source}: {needed}")
        if why_not is not None:
            say(f"{report.source}: memory was not estimated: {why_not}")
        if unreached is not None:
            say(f"{report.source}: the model's files were not checked: {unreached}")
        say(f"{report.source}: {_summary(report)}")
    return 1 if report.errors else 0


def _look_at_hub(report: Report, token: str | None, findings: Findings) -> str | None:
    """Why the hub could not be asked, or None."""
    if report.config is None or isinstance(report.config, OfficialConfig):
        return None
    models = models_in(report.config, report.folder)
    unreached = [check_on_hub(place, model, token, findings) for place, model in models]
    return next(filter(None, unreached), None)


def _summary(report: Report) -> str:
    errors = len(report.errors)
    warnings = len(report.diagnostics) - errors
    told = f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
    return told if errors or report.config is not None else f"{told}, nothing to build"
