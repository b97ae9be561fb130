"""What is wrong with vLLM's arguments in a config: what the engine would refuse when it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from shared.errors import (
    ConfigKeyUnknown,
    ConfigValueInvalid,
    EngineArgumentLeftOut,
    EngineArgumentRefused,
    EngineArgumentRemoved,
)
from shared.vllm_arguments import (
    INVALID,
    LEFT_OUT,
    REFUSED,
    REMOVED,
    SPECULATIVE,
    code_is_allowed,
    table,
    wrong_arguments,
    wrong_value,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.findings import Findings
    from shared.config import VLLMConfig
    from shared.vllm_arguments import Wrong

_ARGUMENTS = "engine_args"
_OUTSIDE = f"in a config, outside {_ARGUMENTS}"  # a model.json has no other place for it
_NEEDS = "must name a method, such as ngram, or a draft model"
_LENGTH = "num_speculative_tokens"
_NEEDS_LENGTH = f"must have {_LENGTH}: no draft model says how many"
_LOOKED_UP = ("ngram", "ngram_gpu")  # in the prompt; a draft model is not read
# The other methods draft from the prompt, or with what the model's own checkpoint has for it.
_DRAFTED = ("dflash", "draft_model", "eagle", "eagle3", "medusa", "mlp_speculator")


def check_vllm(config: VLLMConfig, findings: Findings, within: tuple[str, ...] = (_ARGUMENTS,)) -> None:
    """Report arguments that do not exist, that may not be set, and whose values vLLM does not accept.

    `within` is where the engine arguments stand: nowhere in a model.json, which has nothing else.
    """
    for wrong in wrong_arguments(config.engine_args, code=code_is_allowed(os.environ)):
        _report(wrong, (*within, *wrong.place), findings)
    own = table()["own"]
    values: dict[str, Any] = {"quantization": config.quantization, SPECULATIVE: config.speculative_config}
    for name, value in values.items():
        for wrong in wrong_value((name,), own[name], value):
            _report(wrong, wrong.place, findings)
    if config.speculative_config is not None:
        _check_speculation(config.speculative_config, findings)


def _check_speculation(given: Mapping[str, Any], findings: Findings) -> None:
    method, model = given.get("method"), given.get("model")
    problem = None
    if not (method or model):
        problem = _NEEDS
    elif not model and method in _DRAFTED:
        problem = f"must have a draft model: {method} drafts with one"
    elif given.get(_LENGTH) is None and (not model or method in _LOOKED_UP):
        problem = _NEEDS_LENGTH
    if problem is not None:
        findings.error((SPECULATIVE,), ConfigValueInvalid(key=SPECULATIVE, problem=problem))
    match given:
        case {"prompt_lookup_min": int(shortest), "prompt_lookup_max": int(longest)} if (
            method in _LOOKED_UP and shortest > longest
        ):
            place = (SPECULATIVE, "prompt_lookup_min")
            problem = f"must be at most prompt_lookup_max, which is {longest}"
            findings.error(place, ConfigValueInvalid(key=".".join(place), problem=problem))


def _report(wrong: Wrong, place: tuple[str, ...], findings: Findings) -> None:
    key = ".".join(place)
    match wrong.kind:
        case kind if kind == INVALID:
            findings.error(place, ConfigValueInvalid(key=key, problem=f"must be {wrong.told}"))
        case kind if kind == REFUSED:
            findings.error(place, EngineArgumentRefused(argument=place[-1], reason=wrong.told))
        case kind if kind == LEFT_OUT:
            findings.warn(place, EngineArgumentLeftOut(argument=place[-1], reason=wrong.told))
        case kind if kind == REMOVED:
            instead = f"Write {wrong.told} in its place" if wrong.told else "Remove it"
            if wrong.told.partition(":")[0] in table()["own"]:
                instead += f"; {_OUTSIDE}"
            error = EngineArgumentRemoved(version=table()["version"], argument=place[-1], instead=instead)
            findings.warn(place, error)
        case _:
            instead = wrong.told or "one of those in docs/config.md"
            if instead in table()["own"] and place[0] != SPECULATIVE:
                instead += f" ({_OUTSIDE})"
            findings.error(place, ConfigKeyUnknown(key=key, instead=instead))
