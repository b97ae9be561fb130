"""config.json of the supported architectures, checked.

Keys and defaults are those of `LlamaConfig`, `MistralConfig` and `Qwen2Config` in transformers; the rotary
settings may be in `rope_theta` and `rope_scaling`, or, as of version 5, together in `rope_parameters`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from shared.errors import CheckpointInvalid, UnsupportedArchitecture

# Architecture -> max_position_embeddings if config.json omits it.
_CONTEXT_LENGTHS = {"LlamaForCausalLM": 2048, "MistralForCausalLM": 131072, "Qwen2ForCausalLM": 32768}

_MISTRAL_SLIDING_WINDOW = 4096
_MAX_COUNT = 2**31 - 1  # CTranslate2 keeps them in 32 bits


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary positions are stretched; the last three are set for llama3 only."""

    kind: str  # linear or llama3
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 0


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What the conversion must know about a checkpoint."""

    vocab_size: int
    max_position_embeddings: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    sliding_window: int | None
    tie_word_embeddings: bool
    query_key_value_bias: bool
    attention_output_bias: bool
    mlp_bias: bool


def read_hyperparameters(config: dict[str, Any]) -> Hyperparameters:
    """Raises UnsupportedArchitecture for other architectures, CheckpointInvalid for a variant that cannot be
    converted.
    """
    architecture = _architecture(config)
    _refuse_variants(config)
    heads = _count(config, "num_attention_heads")
    hidden_size = _count(config, "hidden_size")
    key_value_heads = _count(config, "num_key_value_heads", heads)
    if heads % key_value_heads:
        raise CheckpointInvalid(
            reason=f"num_attention_heads {heads} is not a multiple of num_key_value_heads {key_value_heads}"
        )
    if config.get("head_dim") is None and hidden_size < heads:
        reason = f"hidden_size is {hidden_size}, less than num_attention_heads, which is {heads}"
        raise CheckpointInvalid(reason=reason)
    head_dim = _count(config, "head_dim", hidden_size // heads)
    if head_dim % 2:
        raise CheckpointInvalid(reason=f"rotary positions need an even head_dim, but it is {head_dim}")
    rope = _rope_parameters(config)
    biased = bool(config.get("attention_bias"))
    return Hyperparameters(
        vocab_size=_count(config, "vocab_size"),
        max_position_embeddings=_count(config, "max_position_embeddings", _CONTEXT_LENGTHS[architecture]),
        hidden_size=hidden_size,
        intermediate_size=_count(config, "intermediate_size"),
        num_hidden_layers=_count(config, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        rms_norm_eps=_number(config, "rms_norm_eps", 1e-6),
        rope_theta=_number(rope, "rope_theta", 10_000.0),
        rope_scaling=_rope_scaling(rope),
        sliding_window=_sliding_window(architecture, config),
        tie_word_embeddings=bool(config.get("tie_word_embeddings")),
        query_key_value_bias=biased or architecture == "Qwen2ForCausalLM",
        attention_output_bias=biased,
        mlp_bias=bool(config.get("mlp_bias")),
    )


def _architecture(config: dict[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise CheckpointInvalid(reason="config.json has no list of architectures")
    name = str(names[0])
    if name not in _CONTEXT_LENGTHS:
        raise UnsupportedArchitecture(architecture=name, supported=", ".join(_CONTEXT_LENGTHS))
    return name


def _refuse_variants(config: dict[str, Any]) -> None:
    if config.get("quantization_config"):
        raise CheckpointInvalid(reason="its weights are already quantized")
    if (activation := config.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise CheckpointInvalid(
            reason=f'the activation {json.dumps(activation)} is not supported, only "silu"'
        )
    if config.get("use_sliding_window"):
        raise CheckpointInvalid(reason="a sliding window in only some layers is not supported")


def _sliding_window(architecture: str, config: dict[str, Any]) -> int | None:
    if architecture != "MistralForCausalLM" or config.get("sliding_window", 0) is None:
        return None
    return _count(config, "sliding_window", _MISTRAL_SLIDING_WINDOW)


def _rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """The rotary settings under their newer names, wherever they are; null is as good as nothing."""
    own: dict[str, Any] = {key: config.get(key) for key in ("rope_theta", "partial_rotary_factor")}
    for key in ("rope_scaling", "rope_parameters"):
        if isinstance(found := config.get(key), dict):
            own |= found
    return {key: value for key, value in own.items() if value is not None}


def _rope_scaling(rope: dict[str, Any]) -> RopeScaling | None:
    if rope.get("partial_rotary_factor", 1) != 1:
        raise CheckpointInvalid(reason="rotary positions in only part of each head are not supported")
    kind = rope.get("rope_type", rope.get("type"))
    if kind is None and "factor" in rope:
        raise CheckpointInvalid(reason="config.json has a factor of its rotary positions, but no rope_type")
    match kind or "default":
        case "default":
            return None
        case "linear":
            return RopeScaling("linear", _number(rope, "factor"))
        case "llama3":
            return RopeScaling(
                "llama3",
                _number(rope, "factor"),
                _number(rope, "low_freq_factor"),
                _number(rope, "high_freq_factor"),
                _count(rope, "original_max_position_embeddings"),
            )
        case other:
            raise CheckpointInvalid(
                reason=f"the rope scaling {json.dumps(other)} is not supported; linear and llama3 are"
            )


def _count(settings: dict[str, Any], key: str, default: int | None = None) -> int:
    value = settings.get(key)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_COUNT:
        raise _wrong(key, value, "a whole number from 1 to 2^31 - 1")
    return value


def _number(settings: dict[str, Any], key: str, default: float | None = None) -> float:
    value = settings.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise _wrong(key, value, "a positive number")
    return float(value)


def _wrong(key: str, value: object, wanted: str) -> CheckpointInvalid:
    if value is None:
        return CheckpointInvalid(reason=f"config.json has no {key}")
    return CheckpointInvalid(reason=f"{key} in config.json is {json.dumps(value)}, not {wanted}")
