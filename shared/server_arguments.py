"""The parameters of Triton's model `tensorrt_llm`, as configs name them under `server.tensorrt_llm.args`.

Names and meanings are those of config.pbtxt of TensorRT-LLM's model repository (inflight_batcher_llm) and of
the placeholders in it. Each either has an effect on the executor or is accepted and ignored, with a reason;
docs/tensorrt_llm.md is made from this table. Standard library only: the engine process reads it too.
"""

from __future__ import annotations

import difflib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shared.errors import ServerParameterInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Effective:
    """A parameter with an effect: where it goes, and the values that it may have."""

    goes_to: str
    values: str
    parse: Callable[[str], Any]


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _fraction(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _inner_fraction(text: str) -> float:
    if (number := _fraction(text)) in (0, 1):
        raise ValueError
    return number


def _number(text: str, lowest: int) -> int:
    number = int(text)
    if not lowest <= number < 2**63:
        raise ValueError
    return number


def _count(text: str) -> int:
    return _number(text, 0)


def _positive(text: str) -> int:
    return _number(text, 1)


def _positives(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _devices(text: str) -> list[int]:
    devices = [_count(part) for part in text.split(",")]
    if len(set(devices)) != len(devices):
        raise ValueError
    return devices


def _no_sink_tokens(text: str) -> None:
    """KvCacheConfig refuses 0, and its manager every other number ("streamLLM is not supported")."""
    if int(text):
        raise ValueError


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return parse


def _batching(text: str) -> None:
    if text.lower() not in ("inflight_fused_batching", "inflight_batching", "v1"):
        raise ValueError


_FLAG = "true or false"
_POLICY = "batch_scheduler_policy"
_BATCHING = Effective(
    "nothing",
    "inflight_fused_batching, inflight_batching or V1: requests are always batched in flight",
    _batching,
)

DECOUPLED = "decoupled_mode"  # which is read for every engine
CHUNKED = "enable_chunked_context"

EFFECTIVE: Mapping[str, Effective] = {
    DECOUPLED: Effective("model_transaction_policy.decoupled", _FLAG, _boolean),
    _POLICY: Effective(
        "SchedulerConfig.capacity_scheduler_policy",
        "guaranteed_no_evict, or max_utilization, which turns enable_chunked_context on",
        _one_of("guaranteed_no_evict", "max_utilization"),
    ),
    "batching_strategy": _BATCHING,
    "gpt_model_type": _BATCHING,
    "kv_cache_free_gpu_mem_fraction": Effective(
        "KvCacheConfig.free_gpu_memory_fraction", "a number above 0 and below 1", _inner_fraction
    ),
    "max_tokens_in_paged_kv_cache": Effective(
        "KvCacheConfig.max_tokens", "a number of tokens, at least 1", _positive
    ),
    "max_attention_window_size": Effective(
        "KvCacheConfig.max_attention_window",
        "one number of tokens, or several, separated by commas",
        _positives,
    ),
    "sink_token_length": Effective(
        "nothing", "0: TensorRT-LLM no longer has attention sinks", _no_sink_tokens
    ),
    "kv_cache_host_memory_bytes": Effective("KvCacheConfig.host_cache_size", "a number of bytes", _count),
    "kv_cache_onboard_blocks": Effective("KvCacheConfig.onboard_blocks", _FLAG, _boolean),
    "enable_kv_cache_reuse": Effective("KvCacheConfig.enable_block_reuse", _FLAG, _boolean),
    CHUNKED: Effective("ExecutorConfig.enable_chunked_context", _FLAG, _boolean),
    "max_queue_size": Effective(
        "ExecutorConfig.max_queue_size", "a number of requests; 0: without a limit", _count
    ),
    "enable_trt_overlap": Effective("ExecutorConfig.enable_trt_overlap", _FLAG, _boolean),
    "gpu_weights_percent": Effective("ExecutorConfig.gpu_weights_percent", "a number from 0 to 1", _fraction),
    "gpu_device_ids": Effective(
        "ParallelConfig.device_ids", "the numbers of different GPUs, separated by commas", _devices
    ),
    "decoding_mode": Effective(
        "DecodingConfig.decoding_mode",
        "auto, top_k, top_p or top_k_top_p; beams and speculative decoding are not served",
        _one_of("auto", "top_k", "top_p", "top_k_top_p"),
    ),
    "multi_block_mode": Effective("ExtendedRuntimePerfKnobConfig.multi_block_mode", _FLAG, _boolean),
    "enable_context_fmha_fp32_acc": Effective(
        "ExtendedRuntimePerfKnobConfig.enable_context_fmha_fp32_acc", _FLAG, _boolean
    ),
    "cuda_graph_mode": Effective("ExtendedRuntimePerfKnobConfig.cuda_graph_mode", _FLAG, _boolean),
    "cuda_graph_cache_size": Effective(
        "ExtendedRuntimePerfKnobConfig.cuda_graph_cache_size", "a number of graphs", _count
    ),
}

_TRITON = (
    "Triton neither batches nor queues here: each prompt is a request of its own, and the engine batches"
)
_PLACE = "the engine is where engine.tar was unpacked"
_NO_BEAMS = "there is no beam search here: a request that asks for beams is refused"
_NO_LORA = "LoRA is not served: a request that asks for it is refused"
_NO_SPECULATION = "speculative decoding is not served"
_NO_ENCODER = "engines with an encoder are not served"
_NO_GUIDE = "guided decoding is not served"
_RANKS_OF_THE_ENGINE = "the ranks are those of the engine, mpirun starts them, and rank 0 leads them"
_NOT_RETURNED = "log probabilities and logits are not returned"

IGNORED: Mapping[str, str] = {
    "triton_backend": "the engine bridge is the backend",
    "triton_max_batch_size": _TRITON,
    "max_queue_delay_microseconds": _TRITON,
    "engine_dir": _PLACE,
    "gpt_model_path": _PLACE,
    "encoder_engine_dir": _NO_ENCODER,
    "encoder_model_path": _NO_ENCODER,
    "encoder_input_features_data_type": _NO_ENCODER,
    "cross_kv_cache_fraction": _NO_ENCODER,
    "max_beam_width": _NO_BEAMS,
    "exclude_input_in_output": "the prompt is never repeated in the output",
    "normalize_log_probs": _NOT_RETURNED,
    "logits_datatype": _NOT_RETURNED,
    "prompt_embedding_table_data_type": "prompt tables are not served",
    "cancellation_check_period_ms": "a cancellation is noticed at the request's next token, or within 10 ms",
    "stats_check_period_ms": "statistics are read once a second",
    "iter_stats_max_iterations": "only the latest iteration is read",
    "request_stats_max_iterations": "statistics of single requests are not read",
    "recv_poll_period_ms": _RANKS_OF_THE_ENGINE,
    "participant_ids": _RANKS_OF_THE_ENGINE,
    "num_nodes": _RANKS_OF_THE_ENGINE,
    "executor_worker_path": _RANKS_OF_THE_ENGINE,
    "lora_cache_optimal_adapter_size": _NO_LORA,
    "lora_cache_max_adapter_size": _NO_LORA,
    "lora_cache_gpu_memory_fraction": _NO_LORA,
    "lora_cache_host_memory_bytes": _NO_LORA,
    "lora_prefetch_dir": _NO_LORA,
    "medusa_choices": _NO_SPECULATION,
    "eagle_choices": _NO_SPECULATION,
    "lookahead_window_size": _NO_SPECULATION,
    "lookahead_ngram_size": _NO_SPECULATION,
    "lookahead_verification_set_size": _NO_SPECULATION,
    "speculative_decoding_fast_logits": _NO_SPECULATION,
    "tokenizer_dir": _NO_GUIDE,
    "guided_decoding_backend": _NO_GUIDE,
    "xgrammar_tokenizer_info_path": _NO_GUIDE,
    "FORCE_CPU_ONLY_INPUT_TENSORS": "the engine bridge accepts tensors in the CPU's memory only",
}


@dataclass(slots=True)
class Parameters:
    """What arguments say: the values of those that have an effect and are set, and those that are wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    invalid: dict[str, ServerParameterInvalid] = field(default_factory=dict)
    unknown: dict[str, str | None] = field(default_factory=dict)
    """Each with the nearest known name."""


def read_parameters(arguments: Mapping[str, Any]) -> Parameters:
    """The arguments, sorted by kind.

    None, an empty text, and a placeholder that was not filled (`${name}`) are "not set".
    """
    found = Parameters()
    for name, argument in arguments.items():
        text = "" if argument is None else str(argument).strip()
        if name not in EFFECTIVE and name not in IGNORED:
            known = difflib.get_close_matches(name, [*EFFECTIVE, *IGNORED], n=1)
            found.unknown[name] = known[0] if known else None
        elif text and not text.startswith("${") and name in EFFECTIVE:
            try:
                value = EFFECTIVE[name].parse(text)
            except (ValueError, KeyError):
                reason = f"it must be {EFFECTIVE[name].values}"
                found.invalid[name] = ServerParameterInvalid(parameter=name, value=argument, reason=reason)
            else:
                if value is not None:
                    found.values[name] = value
    try:
        _chunk_what_may_be_paused(found.values)
    except ServerParameterInvalid as invalid:
        found.invalid[_POLICY] = invalid
    return found


def parse_parameters(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those that have an effect and are set; log unknown ones. Raises
    ServerParameterInvalid.
    """
    found = read_parameters(arguments)
    for name, nearest in found.unknown.items():
        hint = f"; the nearest known one is {nearest}" if nearest else ""
        sys.stderr.write(f"server.tensorrt_llm has no parameter {name!r}: it is ignored{hint}\n")
    for invalid in found.invalid.values():
        raise invalid
    return found.values


def _chunk_what_may_be_paused(values: dict[str, Any]) -> None:
    """With max_utilization, enable chunked context unless it is set. Raises ServerParameterInvalid when it is
    off.

    A paused request starts again with its output so far as part of its prompt, which without chunks may
    exceed the longest prompt: the executor refuses every streaming request that could get there.
    """
    policy = values.get(_POLICY)
    if policy != "max_utilization":
        return
    if values.setdefault(CHUNKED, True):
        return
    raise ServerParameterInvalid(
        parameter=_POLICY,
        value=policy,
        reason="without enable_chunked_context it refuses prompts and answers that fit the engine",
    )


def is_decoupled(arguments: Mapping[str, Any]) -> bool:
    """Whether Triton's models may give several responses to a request; they may by default.

    Raises ServerParameterInvalid.
    """
    asked = {name: argument for name, argument in arguments.items() if name == DECOUPLED}
    decoupled: bool = parse_parameters(asked).get(DECOUPLED, True)
    return decoupled
