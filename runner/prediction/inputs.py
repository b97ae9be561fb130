"""The inputs of a prediction, and what they ask of the engine: old names, ranges, defaults."""

from __future__ import annotations

import json
import secrets
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.protocol.engine import MOST_TOKENS, SamplingParameters
from shared.errors import (
    InvalidArgument,
    InvalidArgumentMaxTokens,
    InvalidArgumentMinTokens,
    SettingInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.settings import Settings
    from runner.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 512
DEFAULT_TEMPLATE = "{prompt}"
_NEUTRAL_LENGTH_PENALTY = 1.0
_INTEGERS = ("max_tokens", "min_tokens", "top_k", "seed", "max_new_tokens", "min_new_tokens")
_RANDOM_SEED_BITS = 32  # every reader of JSON takes them
_SEED_BITS = 64  # the tensor `seed` is a UINT64
_LARGEST_FLOAT32 = 3.4028234663852886e38


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a prediction sends; None is "not sent"."""

    prompt: str | None = None
    messages: str | None = None
    system_prompt: str | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int | None = None
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    stop_sequences: str | None = None
    length_penalty: float = _NEUTRAL_LENGTH_PENALTY
    presence_penalty: float = 0.0
    seed: int | None = None
    prompt_template: str | None = None
    log_performance_metrics: bool = False
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None

    def __post_init__(self) -> None:
        """To JSON Schema, 3.0 is an integer too."""
        for name in _INTEGERS:
            if isinstance(value := getattr(self, name), float):
                object.__setattr__(self, name, int(value))


@dataclass(frozen=True, slots=True)
class Defaults:
    """What stands in for inputs that were not sent: from the environment, else from `instantiate`."""

    system_prompt: str
    prompt_template: str
    stop_sequences: str | None
    end_ids: frozenset[int]
    random_seed: bool = False
    """Whether a seed is chosen where none was sent, so that it can be told."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        instantiate: Mapping[str, object],
        tokenizer: Tokenizer,
        *,
        random_seed: bool = False,
    ) -> Defaults:
        """Settle each default; `instantiate` is `Settings.instantiate`.

        Raises E4002 for an END_ID that the tokenizer does not have.
        """

        def settled(own: str | None, key: str) -> str | None:
            if own is not None:
                return own
            value = instantiate.get(key)
            return json.dumps(value) if isinstance(value, list) else None if value is None else str(value)

        end_ids = tokenizer.end_ids
        if settings.end_id is not None:
            if settings.end_id >= tokenizer.vocab_size:
                reason = f"the tokenizer has only the ids below {tokenizer.vocab_size}"
                raise SettingInvalid(setting="END_ID", value=settings.end_id, reason=reason)
            end_ids = frozenset({settings.end_id} if settings.end_id >= 0 else ())
        return cls(
            system_prompt=settled(settings.system_prompt, "system_prompt") or "",
            prompt_template=settled(settings.prompt_template, "prompt_template") or DEFAULT_TEMPLATE,
            stop_sequences=settled(settings.stop_sequences, "stop_sequences"),
            end_ids=end_ids,
            random_seed=random_seed,
        )


def max_tokens_asked(inputs: Inputs) -> int:
    """`max_tokens` under either of its names. Raises E1102."""
    if inputs.max_new_tokens is None:
        return inputs.max_tokens
    # A max_tokens that is the default was most likely filled in by Cog, not sent.
    if inputs.max_tokens not in (DEFAULT_MAX_TOKENS, inputs.max_new_tokens):
        raise InvalidArgumentMaxTokens
    return inputs.max_new_tokens


def _min_tokens(inputs: Inputs, max_tokens: int) -> int | None:
    if inputs.min_tokens is not None and inputs.min_new_tokens is not None:
        raise InvalidArgumentMinTokens
    min_tokens = inputs.min_tokens if inputs.min_new_tokens is None else inputs.min_new_tokens
    if min_tokens is None or min_tokens <= 0:  # -1 has always meant "no minimum"
        return None
    if min_tokens > max_tokens:
        raise InvalidArgument(
            argument="min_tokens", value=min_tokens, reason=f"max_tokens is only {max_tokens}"
        )
    return min_tokens


def sampling_of(inputs: Inputs, max_tokens: int, *, random_seed: bool) -> SamplingParameters:
    """How tokens are to be chosen. Raises E1101 and E1104.

    `max_tokens` is how many there can be; `random_seed` has a seed chosen where it matters and none was sent.
    """
    min_tokens = _min_tokens(inputs, max_tokens)
    # Executors refuse a temperature or a top_p of 0; people mean "always the likeliest token".
    greedy = 0 in (_float32(inputs.temperature), _float32(inputs.top_p)) or inputs.top_k == 1
    seed = inputs.seed
    if seed is None and random_seed and not greedy:
        seed = secrets.randbits(_RANDOM_SEED_BITS)
    for argument, value, most in (
        ("seed", seed, 2**_SEED_BITS - 1),
        ("top_k", max(inputs.top_k, 0), MOST_TOKENS),
    ):
        if value is not None and not 0 <= value <= most:
            raise InvalidArgument(argument=argument, value=value, reason=f"it is from 0 to {most}")
    return SamplingParameters(
        top_k=1 if greedy else max(inputs.top_k, 0),
        top_p=None if greedy else inputs.top_p,
        temperature=None if greedy else inputs.temperature,
        min_tokens=min_tokens,
        seed=seed,
        length_penalty=None if inputs.length_penalty == _NEUTRAL_LENGTH_PENALTY else inputs.length_penalty,
        presence_penalty=_presence_penalty(inputs.presence_penalty) or None,
    )


def _presence_penalty(value: float) -> float:
    if not abs(value) <= _LARGEST_FLOAT32:
        raise InvalidArgument(argument="presence_penalty", value=value, reason="engines reckon with 32 bits")
    return _float32(value)


def _float32(value: float) -> float:
    """As engines will see it; a number too small for them is 0."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
