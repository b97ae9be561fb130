"""Roughly what vLLM needs of a GPU's memory: weights, and a KV cache with room for a number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from builder.check.kv_cache import cache_needs, number
from builder.engines.vllm_checkpoint import check_quantization, default_context, longest_context, text_config
from builder.sources.parameters import bytes_held
from shared.config.vllm import GPUS
from shared.errors import (
    CheckpointInvalid,
    ConfigValueInvalid,
    ContextTooLongForGpu,
    ModelTooLargeForGpu,
    ParallelismDoesNotDivide,
)
from shared.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from builder.findings import Findings
    from shared.config import VLLMConfig

_UTILIZATION = 0.92  # vLLM's default of gpu_memory_utilization
_BATCHED_TOKENS = 8192  # and of max_num_batched_tokens on a large GPU; on others 2048
_SEQUENCES = 1024  # of max_num_seqs; on others 256
_LARGE_GPU = 70 << 30
_OF_CUDA = 3 << 29  # the context, communication, graphs: 1.5 GiB; assumed, not measured
_BLOCK = 16  # tokens
# The arguments that decide what is left for weights and cache, and how each leaves more.
_MAKE_ROOM = {"gpu_memory_utilization": "raise", "max_num_seqs": "lower", "max_num_batched_tokens": "lower"}
_CLEARLY = 1.15  # an estimate is not more exact than that
_TO_EIGHT_BITS = {
    "experts_int8",
    "fp8",
    "fp8_per_block",
    "fp8_per_channel",
    "fp8_per_tensor",
    "int8_per_channel_weight_only",
    "mxfp8",
}
_FP8_BITS = 8
_KV_BITS = {"float32": 32, "fp8": _FP8_BITS, "int8": 8, "int4": 4, "nvfp4": 4.5, "turboquant_k8v4": 6}
_OTHER_KV_BITS = {"turboquant_4bit_nc": 4, "turboquant_3bit_nc": 3, "turboquant_k3v4_nc": 3.5}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of each GPU, and tokens; without a GPU, nothing is known about what fits."""

    parameters: int
    weights: int
    cache_per_token: int
    """0: the model's config.json does not say what it needs."""
    wanted: int | None
    """Tokens that one sequence may have; None if neither config nor model says."""
    gpu: str | None
    usable: int | None
    """What vLLM uses of the GPU, less what it needs besides weights and cache."""
    feasible: int | None
    """Tokens that the cache has room for."""

    def __str__(self) -> str:
        """One line for people."""
        weights = f"roughly {readable(self.weights)} of weights on each GPU"
        if not self.cache_per_token:
            return f"{weights}; what the KV cache needs for each token is not known"
        cache = f"{readable(self.cache_per_token)} of KV cache for each token"
        if self.feasible is None:
            return f"{weights}, {cache}; set `gpu`, or pass --gpu H100, to see what fits"
        room = f"{self.gpu} has room for {self.feasible} tokens beside them"
        count = self.feasible // self.wanted if self.wanted else 0
        longest = f", {count} sequence{'' if count == 1 else 's'} of {self.wanted}" if count else ""
        return f"{weights}, {cache}; {room}{longest}"


def memory_of(config: VLLMConfig, parameters: Mapping[str, int], model: Mapping[str, Any]) -> Memory:
    """What the checkpoint with these parameters, by type, needs; `model` is its config.json."""
    text = text_config(model)
    tensor, pipeline = config.tensor_parallel_size, config.pipeline_parallel_size
    weights = _loaded(config, parameters) // (tensor * pipeline)
    per_token, bounded = cache_needs(text, _kv_bits(config), tensor, pipeline)
    usable = feasible = None
    if config.gpu is not None:
        usable = _usable(config, text, config.engine_args)
        room = int(number(config.engine_args.get("kv_cache_memory_bytes"), usable - weights))
        if per_token:
            feasible = max(0, int((room - bounded) / per_token)) // _BLOCK * _BLOCK
    wanted = config.max_model_len or default_context(model)
    return Memory(
        sum(parameters.values()),
        weights,
        int(per_token),
        int(number(wanted, 0)) or None,
        config.gpu,
        usable,
        feasible,
    )


def _loaded(config: VLLMConfig, parameters: Mapping[str, int]) -> int:
    """Bytes of the weights in memory: those that are quantized while loading have 8 bits."""
    held = bytes_held(parameters, config.dtype)
    return min(held, sum(parameters.values())) if config.quantization in _TO_EIGHT_BITS else held


def check_memory(config: VLLMConfig, memory: Memory, model: Mapping[str, Any], findings: Findings) -> None:
    """Report what does not fit: as an error if the estimate leaves no doubt, else as a warning."""
    wanted, feasible = memory.wanted, memory.feasible
    if memory.usable is None:
        return
    if memory.weights > memory.usable:
        own = _in_the_way(config, text_config(model), memory)
        error = ModelTooLargeForGpu(
            weights=readable(memory.weights),
            gpu=memory.gpu,
            usable=readable(max(0, memory.usable)),
            fix=" and ".join(f"{_MAKE_ROOM[name]} {name}" for name in own).capitalize()
            or "Raise tensor_parallel_size",
        )
        findings.error(("model",), error)
    elif wanted is not None and feasible is not None and wanted > feasible:
        gpus = config.tensor_parallel_size * config.pipeline_parallel_size
        named = f"one {memory.gpu}" if gpus == 1 else f"{gpus} x {memory.gpu}"
        room = f"about {feasible} tokens" if feasible else "no tokens"
        too_long = ContextTooLongForGpu(gpus=named, room=room, wanted=wanted, fix=_to_fit(config, feasible))
        clear = wanted > _CLEARLY * feasible
        place = "model" if config.max_model_len is None else "max_model_len"
        (findings.error if clear else findings.warn)((place,), too_long)


def _to_fit(config: VLLMConfig, feasible: int) -> str:
    """What would make room for longer sequences, or for any."""
    is_set = config.engine_args.get("kv_cache_memory_bytes") is not None  # then no GPU is too small for it
    ways = [f"set max_model_len to {feasible} or less"] if feasible else []
    if is_set:
        ways.append("raise kv_cache_memory_bytes")
    elif not feasible:
        ways.append("use a quantized checkpoint")
    ways.append("use more GPUs" if is_set else "use more or larger GPUs")
    if _kv_bits(config) > _FP8_BITS:
        ways.append("set kv_cache_dtype: fp8 in engine_args")
    text = ", or ".join(ways)
    return text[0].upper() + text[1:]


def check_model(config: VLLMConfig, model: Mapping[str, Any], findings: Findings) -> None:
    """Report what vLLM would refuse of the model's config.json, unless the config changes it."""
    if config.engine_args.get("hf_overrides"):
        return
    try:
        check_quantization(model)
    except CheckpointInvalid as error:
        findings.error(("model",), error)
    longest = longest_context(model)
    if longest is not None and config.max_model_len is not None and config.max_model_len > longest:
        problem = f"must be at most {longest}, the model's max_position_embeddings"
        findings.error(("max_model_len",), ConfigValueInvalid(key="max_model_len", problem=problem))


def check_division(config: VLLMConfig, model: Mapping[str, Any], findings: Findings) -> None:
    """Report a number of GPUs over which the model cannot be spread."""
    text = text_config(model)
    heads, layers = text.get("num_attention_heads"), text.get("num_hidden_layers")
    tensor, pipeline = config.tensor_parallel_size, config.pipeline_parallel_size
    if isinstance(heads, int) and heads % tensor:
        error = ParallelismDoesNotDivide(
            argument="tensor_parallel_size",
            size=tensor,
            count=heads,
            what="attention heads",
            rule="divides them",
        )
        findings.error(("tensor_parallel_size",), error)
    if isinstance(layers, int) and layers < pipeline:
        error = ParallelismDoesNotDivide(
            argument="pipeline_parallel_size", size=pipeline, count=layers, what="layers", rule="is no larger"
        )
        findings.error(("pipeline_parallel_size",), error)


def _kv_bits(config: VLLMConfig) -> float:
    kind = str(config.engine_args.get("kv_cache_dtype") or "auto")
    if kind == "auto":
        kind = config.dtype  # for which auto never means float32
    known = _OTHER_KV_BITS.get(kind)
    return known or next((bits for start, bits in _KV_BITS.items() if kind.startswith(start)), 16)


def _usable(config: VLLMConfig, text: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
    """What vLLM with these arguments leaves of the config's GPU for weights and cache."""
    assert config.gpu is not None
    total = GPUS[config.gpu].memory
    share = number(arguments.get("gpu_memory_utilization"), _UTILIZATION)
    if arguments.get("kv_cache_memory_bytes") is not None:
        share = 1  # vLLM ignores the argument then
    return int(total * share) - _beside(config, text, arguments, large=total >= _LARGE_GPU)


def _in_the_way(config: VLLMConfig, text: Mapping[str, Any], memory: Memory) -> list[str]:
    """The arguments without which the weights would fit: each leaves less than vLLM's own value."""

    def without(*names: str) -> int:
        rest = {name: value for name, value in config.engine_args.items() if name not in names}
        return _usable(config, text, rest)

    names = [name for name in _MAKE_ROOM if without(name) > without()]
    return names if without(*names) >= memory.weights else []


def _beside(config: VLLMConfig, text: Mapping[str, Any], arguments: Mapping[str, Any], *, large: bool) -> int:
    """What the largest step needs: activations of its tokens, logits of its sequences."""
    tokens = number(arguments.get("max_num_batched_tokens"), _BATCHED_TOKENS if large else 2048)
    sequences = number(arguments.get("max_num_seqs"), _SEQUENCES if large else 256)
    hidden = number(text.get("hidden_size"), 0)
    inner = number(text.get("intermediate_size"), 4 * hidden) / config.tensor_parallel_size
    logits = 2 * 4 * sequences * number(text.get("vocab_size"), 0)
    return int(2 * tokens * (2 * inner + 4 * hidden) + logits) + _OF_CUDA
