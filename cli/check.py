"""`cog-triton check`: what is wrong with a config, and roughly what its build takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from builder.check.estimate import check_machine, estimate, parameters_of
from builder.check.model import check_on_hub
from builder.check.source import check_source
from builder.findings import Findings, Severity
from builder.sources.model import is_url, local_folder, model_of
from cli.output import counted, say, say_json
from shared.config import CogTRTLLMConfig, OfficialConfig, TensorRTLLMConfig

if TYPE_CHECKING:
    from builder.check.estimate import Estimate
    from builder.check.report import Report

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def check(source: str, *, as_json: bool, gpus: int | None, token: str | None) -> int:
    """Print the report on the config at `source`; return the exit status: 1 when there are errors."""
    report = check_source(source, gpus)
    findings = Findings()
    if not report.errors:
        _look_at_hub(report, token, findings)
    needed = None if report.errors or findings.errors else _estimate(report, token)
    if needed is not None:
        check_machine(needed, findings)
    report = report.with_findings(findings)
    if as_json:
        say_json(report.as_json() | {"estimate": asdict(needed) if needed else None})
    else:
        for one in report.diagnostics:
            say(str(one), _COLOURS[one.severity])
        if needed is not None:
            say(f"{report.source}: {needed}")
        say(f"{report.source}: {_summary(report)}")
    return 1 if report.errors else 0


def _look_at_hub(report: Report, token: str | None, findings: Findings) -> None:
    if report.config is None or isinstance(report.config, OfficialConfig):
        return
    wanted = model_of(report.config)
    if wanted is not None:
        check_on_hub(wanted, report.folder, token, findings)


def _estimate(report: Report, token: str | None) -> Estimate | None:
    """None when the model has no safetensors headers that can be read from here."""
    if not isinstance(report.config, CogTRTLLMConfig | TensorRTLLMConfig):
        return None
    wanted = model_of(report.config)
    if wanted is None or is_url(wanted.model):
        return None
    model = local_folder(wanted.model, report.folder) or wanted.model
    try:
        return estimate(parameters_of(model, wanted.revision, token), report.calls)
    except Exception:  # the library raises no narrower type, and without an estimate the check still stands
        return None


def _summary(report: Report) -> str:
    errors = len(report.errors)
    warnings = len(report.diagnostics) - errors
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
