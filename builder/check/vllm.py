"""What is wrong with vLLM's arguments in a config: what the engine would refuse when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shared.errors import (
    ConfigKeyUnknown,
    ConfigValueInvalid,
    EngineArgumentRefused,
    EngineArgumentRemoved,
)
from shared.vllm_arguments import (
    INVALID,
    REFUSED,
    REMOVED,
    SPECULATIVE,
    code_is_allowed,
    table,
    wrong_arguments,
    wrong_value,
)

if TYPE_CHECKING:
    from builder.findings import Findings
    from shared.config import VLLMConfig
    from shared.vllm_arguments import Wrong

_ARGUMENTS = "engine_args"
_NEEDS = "must name a method, such as ngram, or a draft model"


def check_vllm(config: VLLMConfig, findings: Findings) -> None:
    """Report arguments that do not exist, that may not be set, and whose values vLLM does not accept."""
    for wrong in wrong_arguments(config.engine_args, code=code_is_allowed(os.environ)):
        _report(wrong, (_ARGUMENTS, *wrong.place), findings)
    own = table()["own"]
    values: dict[str, Any] = {"quantization": config.quantization, SPECULATIVE: config.speculative_config}
    for name, value in values.items():
        for wrong in wrong_value((name,), own[name], value):
            _report(wrong, wrong.place, findings)
    speculative = config.speculative_config
    if speculative is not None and not (speculative.get("method") or speculative.get("model")):
        findings.error((SPECULATIVE,), ConfigValueInvalid(key=SPECULATIVE, problem=_NEEDS))


def _report(wrong: Wrong, place: tuple[str, ...], findings: Findings) -> None:
    key = ".".join(place)
    match wrong.kind:
        case kind if kind == INVALID:
            findings.error(place, ConfigValueInvalid(key=key, problem=f"must be {wrong.told}"))
        case kind if kind == REFUSED:
            findings.error(place, EngineArgumentRefused(argument=place[-1], reason=wrong.told))
        case kind if kind == REMOVED:
            instead = f"Write {wrong.told} in its place" if wrong.told else "Remove it"
            error = EngineArgumentRemoved(version=table()["version"], argument=place[-1], instead=instead)
            findings.warn(place, error)
        case _:
            instead = wrong.told or "one of those in docs/config.md"
            findings.error(place, ConfigKeyUnknown(key=key, instead=instead))
