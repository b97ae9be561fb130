"""What the config.json of a checkpoint for vLLM says that its start would find: packages, and the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

# Methods of quantization for which vLLM needs a package that the images lack.
PACKAGES = {"torchao": "torchao"}
# Methods that vLLM had once.
_REMOVED = frozenset({"bitsandbytes"})
_LONG = ("longrope", "su")
_UNSCALED = ("default", "llama3", *_LONG)


def check_quantization(model: Mapping[str, Any]) -> None:
    """Raises CheckpointInvalid when the weights are quantized in a way that the images cannot load."""
    of_weights = model.get("quantization_config") or text_config(model).get("quantization_config")
    method = of_weights.get("quant_method") if isinstance(of_weights, dict) else None
    if not isinstance(method, str):
        return
    if method.lower() in _REMOVED:
        raise CheckpointInvalid(reason=f"its quant_method is {method}, which vLLM no longer supports")
    if package := PACKAGES.get(method.lower()):
        reason = f"its quant_method is {method}, for which vLLM needs the package {package}"
        raise CheckpointInvalid(reason=f"{reason}, and the images lack it")


def longest_context(model: Mapping[str, Any]) -> int | None:
    """The largest max_model_len that vLLM accepts; None where vLLM derives it from more than one key."""
    text = text_config(model)
    longest = text.get("max_position_embeddings")
    derived = any(one.get("model_max_length") is not None or _is_scaled(one) for one in (model, text))
    return longest if isinstance(longest, int) and longest > 0 and not derived else None


def default_context(model: Mapping[str, Any]) -> object:
    """The max_model_len that vLLM takes by itself, or less: what config.json has, of whatever type."""
    text = text_config(model)
    longest = text.get("max_position_embeddings")
    return model.get("original_max_position_embeddings", longest) if _is_long(text) else longest


def text_config(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a multimodal model that writes."""
    nested = model.get("text_config")
    return nested if isinstance(nested, dict) else model


def _is_scaled(config: Mapping[str, Any]) -> bool:
    return any(kind not in _UNSCALED for kind in _ropes(config))


def _is_long(config: Mapping[str, Any]) -> bool:
    """LongRoPE hurts shorter texts: vLLM does not use it unless it is asked for longer ones."""
    return any(kind in _LONG for kind in _ropes(config))


def _ropes(config: Mapping[str, Any]) -> list[object]:
    """The types of what is said of rotary embeddings; "" where that is of another shape."""
    ropes = filter(None, (config.get("rope_scaling"), config.get("rope_parameters")))
    return [rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else "" for rope in ropes]
