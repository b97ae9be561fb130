"""The checks of a request that every engine needs, made once, before an engine sees it."""

from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING

from runner.protocol.engine import MAX_LOG_PROBS
from shared.errors import (
    InvalidArgument,
    ParameterNotHonoured,
    PromptRequired,
    PromptTooLong,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from runner.protocol.engine import Declaration, Request

# The values of each parameter that leave the engine's choice as it is.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "top_k": (0, -1),
    "top_p": (0.0, 1.0),
    "temperature": (1.0,),
    "min_tokens": (0, -1),
    "seed": (),
    "length_penalty": (0.0, 1.0),  # TensorRT-LLM's default, and that of all others
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "min_p": (0.0,),
}
# Parts of a request that not every engine can honour.
_OPTIONAL_PARTS = (
    "bad_words",
    "logit_bias",
    "log_probs",
    "structured_output",
    "lora",
    "cache_salt",
    "priority",
)

_MAX_SHOWN = 100  # characters


def check_request(declared: Declaration, request: Request) -> None:
    """Refuse a request that the engine cannot honour, or would not survive.

    Raises PromptRequired, PromptTooLong, ParameterNotHonoured and InvalidArgument.
    """
    _check_honoured(declared, request)
    limits = declared.limits
    prompt_tokens = len(request.input_token_ids)
    if prompt_tokens == 0:
        raise PromptRequired
    if prompt_tokens > limits.prompt:
        raise PromptTooLong(prompt_tokens=prompt_tokens, max_prompt_tokens=limits.prompt)
    if request.max_tokens < 1:
        raise InvalidArgument(argument="max_tokens", value=request.max_tokens, reason="at least 1 is needed")
    if not 0 <= (request.log_probs or 0) <= MAX_LOG_PROBS:
        reason = f"it must be from 0 to {MAX_LOG_PROBS}"
        raise InvalidArgument(argument="log_probs", value=request.log_probs, reason=reason)
    if limits.vocabulary is not None:
        # For an id out of range, a GPU reads beyond its tables, and nothing works after that.
        _check_ids("prompt", request.input_token_ids, limits.vocabulary)
        _check_ids("bad_words", chain.from_iterable(request.bad_words), limits.vocabulary)
        _check_ids("logit_bias", request.logit_bias, limits.vocabulary, "for")


def shown(value: object) -> str:
    """A value as it was sent: engines get 32-bit numbers, in which 0.1 is 0.10000000149."""
    text = str(float(f"{value:.7g}") if isinstance(value, float) else value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _check_honoured(declared: Declaration, request: Request) -> None:
    for name in _OPTIONAL_PARTS:
        value = getattr(request, name)
        if value not in (None, {}, (), []) and name not in declared.honours:
            raise ParameterNotHonoured(engine=declared.kind, parameter=name, value=shown(value))
    for field in fields(request.sampling):
        value = getattr(request.sampling, field.name)
        if value is None or field.name in declared.honours or value in _NEUTRAL[field.name]:
            continue
        raise ParameterNotHonoured(engine=declared.kind, parameter=field.name, value=shown(value))


def _check_ids(name: str, ids: Iterable[int], vocabulary: int, how: str = "a list with") -> None:
    wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
    if wrong is not None:
        reason = f"this model's tokens are 0 to {vocabulary - 1}"
        raise InvalidArgument(argument=name, value=f"{how} the token {wrong}", reason=reason)
