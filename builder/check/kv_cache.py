"""What a model's KV cache needs for each token, as its config.json says it.

Not every layer keeps all tokens: some keep a window of them, some a state of one size instead. How models
say which is which is in transformers' models/*/configuration_*.py, and so are the defaults of _EVERY_BY_TYPE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_NUMBER = 1e18
_MAX_LAYERS = 1 << 16
_ALL, _WINDOW, _NONE = "all", "window", "none"
_KINDS = {
    "full_attention": _ALL,
    "attention": _ALL,
    "indexed_attention": _ALL,
    "hybrid": _ALL,  # attention beside a state
    "sliding_attention": _WINDOW,
    "chunked_attention": _WINDOW,
    "linear_attention": _NONE,
    "recurrent": _NONE,
    "mamba": _NONE,
    "mamba2": _NONE,
    "conv": _NONE,
    "mlp": _NONE,
    "moe": _NONE,
}
_LISTS = ("layer_types", "layers_block_type")
_EVERY = (
    "full_attention_interval",
    "global_attn_every_n_layers",
    "sliding_window_pattern",
    "_sliding_window_pattern",
)
_EVERY_BY_TYPE = {"gemma2": 2, "gemma3_text": 6, "gemma3n_text": 5, "cohere2": 4, "llama4_text": 4}
_NOT_UNDERSTOOD = (
    "block_configs",
    "compress_ratios",
    "hybrid_layer_pattern",
    "swa_num_key_value_heads",
    "multi_query",
)
# Of layers with a state, which only some model types have, and do not list.
_STATES = ("linear_", "mamba_", "ssm_", "block_types")


class CacheNeeds(NamedTuple):
    """Bytes on one GPU."""

    per_token: float
    """Of the layers that keep all tokens; 0: config.json does not say it."""
    bounded: float
    """Of the layers that keep a window, once that is full."""


def cache_needs(text: Mapping[str, Any], bits: float, tensor: int, pipeline: int) -> CacheNeeds:
    """`text`: what config.json says of the language model; `bits`: of one number in the cache; spread over
    `tensor` x `pipeline` GPUs.
    """
    kinds = _kinds(text)
    if kinds is None:
        return CacheNeeds(0, 0)
    share = bits / 8 / pipeline
    everywhere, windowed = (share * _numbers(text, tensor, kind) for kind in (_ALL, _WINDOW))
    window = number(text.get("sliding_window"), number(text.get("attention_chunk_size"), 0))
    return CacheNeeds(everywhere * kinds.count(_ALL), windowed * kinds.count(_WINDOW) * window)


def number(value: object, otherwise: float) -> float:
    """`value` if it can be a size of something: a config.json may hold anything, even NaN."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return otherwise
    return float(value) if 0 <= value < _MAX_NUMBER else otherwise


def _numbers(text: Mapping[str, Any], tensor: int, kind: str) -> float:
    """What a layer keeps of one token."""
    if latent := text.get("kv_lora_rank"):  # one vector for all heads, on every GPU
        return number(latent, 0) + number(text.get("qk_rope_head_dim"), 0)
    heads = number(text.get("num_attention_heads"), 0)
    kept = number(text.get("num_key_value_heads"), heads)
    dimension = number(text.get("head_dim"), number(text.get("hidden_size"), 0) / max(heads, 1))
    if kind == _ALL:  # Gemma 4
        kept = number(text.get("num_global_key_value_heads"), kept)
        dimension = number(text.get("global_head_dim"), dimension)
    return 2 * max(1.0, kept / tensor) * dimension


def _kinds(text: Mapping[str, Any]) -> list[str] | None:
    """Of each layer that has a cache of its own, what it keeps; None if that is not known."""
    layers = int(number(text.get("num_hidden_layers"), 0))
    if layers > _MAX_LAYERS or any(text.get(name) for name in _NOT_UNDERSTOOD):
        return None
    if not text.get("num_attention_heads"):  # Mamba, which keeps a state
        return None
    for name in _LISTS:
        if isinstance(listed := text.get(name), list) and listed:
            return _shared(text, _known(listed))
    match text:
        case {"hybrid_override_pattern": str(pattern)}:
            return [_ALL if letter == "*" else _NONE for letter in pattern]
        case {"attn_layer_period": int(period), "attn_layer_offset": int(offset)} if period > 0:
            return [_ALL if layer % period == offset else _NONE for layer in range(layers)]
        case (
            {"attn_layer_indices": list(indices)}
            | {"full_attn_idxs": list(indices)}
            | {"linear_attn_config": {"full_attn_layers": list(indices)}}
        ):
            return [_ALL] * len(indices)
        case {"attn_type_list": list(listed)}:
            return [_ALL if one == 1 else _NONE for one in listed]
    return _shared(text, _by_rule(text, layers))


def _known(listed: Sequence[Any]) -> list[str] | None:
    kinds = [_KINDS.get(kind, "") if isinstance(kind, str) else "" for kind in listed]
    return kinds if all(kinds) else None


def _by_rule(text: Mapping[str, Any], layers: int) -> list[str] | None:
    """One layer of so many keeps all tokens, or all layers do the same."""
    for every in (*(text.get(name) for name in _EVERY), _EVERY_BY_TYPE.get(str(text.get("model_type")))):
        if isinstance(every, str):  # EXAONE 4, whose layer_types say it
            return None
        if isinstance(every, int) and every > 0:
            rest = _NONE if text.get("full_attention_interval") else _WINDOW
            return [_ALL if (layer + 1) % every == 0 else rest for layer in range(layers)]
    if any(name.startswith(_STATES) for name in text):
        return None
    slides = text.get("sliding_window") and text.get("use_sliding_window") is not False
    return [_WINDOW if slides else _ALL] * layers


def _shared(text: Mapping[str, Any], kinds: list[str] | None) -> list[str] | None:
    """Without the last layers, if those use the cache of others (Gemma 3n)."""
    shared = int(number(text.get("num_kv_shared_layers"), 0))
    return kinds[: len(kinds) - shared] if kinds and shared else kinds
