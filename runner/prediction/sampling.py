"""From the sampling parameters that were sent to those that engines accept."""

from __future__ import annotations

import secrets
import struct
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from runner.protocol.engine import MAX_TOKENS, SamplingParameters
from shared.errors import InvalidArgument

_RANDOM_SEED_BITS = 32  # every reader of JSON accepts them
_SEED_BITS = 64  # the tensor `seed` is a UINT64
_FLOAT32 = struct.Struct("f")
_LARGEST_FLOAT32 = 3.4028234663852886e38
_FLOATS = tuple(name for name, kind in get_type_hints(SamplingParameters).items() if float in get_args(kind))
# What does not affect an engine's choice need not be sent, so engines without such a parameter accept it.
_NEUTRAL = {
    "length_penalty": 1.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "min_p": 0.0,
}


def settle(sent: SamplingParameters, max_tokens: int, *, random_seed: bool) -> SamplingParameters:
    """How tokens are to be chosen. Raises InvalidArgument.

    `max_tokens` is how many there can be; with `random_seed`, a seed is chosen if it matters and none was
    sent.
    """
    for name in _FLOATS:
        value = getattr(sent, name)
        if value is not None and not abs(value) <= _LARGEST_FLOAT32:
            raise InvalidArgument(
                argument=name, value=value, reason="it does not fit into the 32-bit numbers that engines use"
            )
    if _float32(sent.repetition_penalty) == 0:
        reason = "it must be above 0, even as the 32-bit number that engines use"
        raise InvalidArgument(argument="repetition_penalty", value=sent.repetition_penalty, reason=reason)
    # Executors refuse a temperature or top_p of 0; people mean "always the likeliest token".
    greedy = 0 in (_float32(sent.temperature), _float32(sent.top_p)) or sent.top_k == 1
    seed = sent.seed
    if seed is None and random_seed and not greedy:
        seed = secrets.randbits(_RANDOM_SEED_BITS)
    top_k = max(sent.top_k or 0, 0)
    if seed is not None and not 0 <= seed < 2**_SEED_BITS:
        raise InvalidArgument(argument="seed", value=seed, reason=f"it must be from 0 to {2**_SEED_BITS - 1}")
    if top_k > MAX_TOKENS:
        raise InvalidArgument(argument="top_k", value=top_k, reason=f"it must be at most {MAX_TOKENS}")
    return replace(
        sent,
        top_k=1 if greedy else top_k,
        top_p=None if greedy else sent.top_p,
        temperature=None if greedy else sent.temperature,
        min_tokens=_min_tokens(sent.min_tokens, max_tokens),
        seed=seed,
        **{name: _unless_neutral(name, getattr(sent, name)) for name in _NEUTRAL},
    )


def _min_tokens(min_tokens: int | None, max_tokens: int) -> int | None:
    if min_tokens is None or min_tokens <= 0:  # -1 has always meant "no minimum"
        return None
    if min_tokens > max_tokens:
        # Not "max_tokens is": there may be less room than was asked for.
        reason = f"the answer can have at most {max_tokens}"
        raise InvalidArgument(argument="min_tokens", value=min_tokens, reason=reason)
    return min_tokens


def _unless_neutral(name: str, value: Any) -> Any:
    neutral = _NEUTRAL[name]
    return None if value == neutral or _float32(value) == neutral else value


def _float32(value: float | None) -> float | None:
    """The number as engines will see it; one too small for them is 0."""
    if value is None:
        return None
    rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    return rounded
