"""From a config to the commands of its TensorRT-LLM build, checked; nothing of TensorRT-LLM is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.argument_check import check_arguments
from builder.engines.tensorrt_llm.chain import calls_of_steps
from builder.engines.tensorrt_llm.rules import check_rules
from builder.engines.tensorrt_llm.short import calls_of_short_form
from builder.findings import Findings
from shared.config import CogTRTLLMConfig
from shared.config.problems import dotted
from shared.errors import ConfigCheckFailed, ConfigHoldsSecret

if TYPE_CHECKING:
    from collections.abc import Collection

    from builder.engines.tensorrt_llm.call import Call
    from builder.engines.tensorrt_llm.commands import RunTool
    from shared.config import TensorRTLLMConfig
    from shared.config.document import Place

_DRIVER = Path("/proc/driver/nvidia/gpus")  # one folder per GPU


def commands(config: CogTRTLLMConfig | TensorRTLLMConfig) -> tuple[RunTool, ...]:
    """The commands of `config`. Raises ConfigCheckFailed when they would fail."""
    findings = Findings()
    found = calls(config, findings)
    if findings.errors:
        reason = "; ".join(f"{dotted(one.place)}: {one.error.code}" for one in findings.errors)
        raise ConfigCheckFailed(source="given", reason=reason)
    return tuple(call.command() for call in found)


def calls(
    config: CogTRTLLMConfig | TensorRTLLMConfig,
    findings: Findings,
    gpus: int | None = None,
    *,
    chunked: bool = False,
    wrong: Collection[Place] = (),
) -> list[Call]:
    """The calls of `config`, in order. They are complete if no error was found.

    `gpus` is how many GPUs the build has; None: as many as this machine has, if the driver says so.
    `chunked`: whether the engine is served with chunked context. `wrong`: where values were reported already,
    and left out of `config`.
    """
    if isinstance(config, CogTRTLLMConfig):
        if config.hf_token is not None:
            findings.warn(("hf_token",), ConfigHoldsSecret(key="hf_token"))
        found = calls_of_steps(config, findings)
    else:
        found = calls_of_short_form(config, wrong)
    for call in found:
        call.refused |= {name for name, given in call.arguments.items() if given.place in wrong}
        check_arguments(call, findings)
    check_rules(found, _gpus_here() if gpus is None else gpus, findings, chunked=chunked)
    findings.keep_one_remedy()
    return found


def _gpus_here() -> int | None:
    try:
        return len(list(_DRIVER.iterdir()))
    except OSError:
        return None
