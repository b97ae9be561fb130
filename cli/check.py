"""`cog-triton check`: what is wrong with a config, and roughly what its build takes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from builder.check.estimate import check_machine, config_of, estimate, parameters_of
from builder.check.model import check_on_hub
from builder.check.source import check_source
from builder.check.vllm_memory import check_division, check_memory, memory_of
from builder.findings import Findings, Severity
from builder.sources.model import is_url, local_folder, model_of
from cli.output import counted, say, say_json
from shared.config import CogTRTLLMConfig, OfficialConfig, TensorRTLLMConfig, VLLMConfig
from shared.config.problems import not_among
from shared.config.vllm import GPUS
from shared.errors import ConfigValueInvalid

if TYPE_CHECKING:
    from builder.check.estimate import Estimate
    from builder.check.report import Report
    from builder.check.vllm_memory import Memory

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}


def check(source: str, *, as_json: bool, gpus: int | None, gpu: str | None, token: str | None) -> int:
    """Print the report on the config at `source`; return the exit status: 1 when there are errors.

    `gpu` takes precedence over the one in a config of vLLM. Raises ConfigValueInvalid for an unknown one.
    """
    report = check_source(source, gpus)
    if gpu not in (None, *GPUS):
        raise ConfigValueInvalid(key="--gpu", problem=not_among(list(GPUS), gpu))
    if gpu is not None and isinstance(report.config, VLLMConfig):
        report = replace(report, config=report.config.model_copy(update={"gpu": gpu}))
    findings = Findings()
    unreached = None if report.errors else _look_at_hub(report, token, findings)
    known = not (report.errors or findings.errors or unreached)
    needed = _estimate(report, token, findings) if known else None
    report = report.with_findings(findings)
    if as_json:
        more = {"estimate": asdict(needed) if needed else None, "hub_not_reached": unreached}
        say_json(report.as_json() | more)
    else:
        for one in report.diagnostics:
            say(str(one), _COLOURS[one.severity])
        if needed is not None:
            say(f"{report.source}: {needed}")
        if unreached is not None:
            say(f"{report.source}: the model's files were not checked: {unreached}")
        say(f"{report.source}: {_summary(report)}")
    return 1 if report.errors else 0


def _look_at_hub(report: Report, token: str | None, findings: Findings) -> str | None:
    """Why the hub could not be asked, or None."""
    if report.config is None or isinstance(report.config, OfficialConfig):
        return None
    wanted = model_of(report.config)
    return None if wanted is None else check_on_hub(wanted, report.folder, token, findings)


def _estimate(report: Report, token: str | None, findings: Findings) -> Estimate | Memory | None:
    """None when the model has no safetensors headers that can be read from here."""
    config = report.config
    if not isinstance(config, CogTRTLLMConfig | TensorRTLLMConfig | VLLMConfig):
        return None
    wanted = model_of(config)
    if wanted is None or is_url(wanted.model):
        return None
    model = local_folder(wanted.model, report.folder) or wanted.model
    try:
        parameters = parameters_of(model, wanted.revision, token)
        described = config_of(model, wanted.revision, token) if isinstance(config, VLLMConfig) else {}
    except Exception:  # the library raises no narrower type, and the check is useful without an estimate
        return None
    if not isinstance(config, VLLMConfig):
        needed = estimate(parameters, report.calls)
        check_machine(needed, findings)
        return needed
    memory = memory_of(config, parameters, described)
    check_division(config, described, findings)
    check_memory(config, memory, described, findings)
    return memory


def _summary(report: Report) -> str:
    errors = len(report.errors)
    warnings = len(report.diagnostics) - errors
    return f"{counted(errors, 'error')}, {counted(warnings, 'warning')}"
