"""Which arguments contradict each other, and which have no effect. Sources: TensorRT-LLM near 1.2.1."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.call import ValueRefused
from shared.errors import (
    ArgumentInvalid,
    ArgumentRefused,
    ArgumentsContradict,
    ArgumentWithoutEffect,
    PromptCapped,
    RanksExceedGpus,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from builder.engines.tensorrt_llm.call import Call
    from builder.findings import Findings

    _Rule = Callable[[Call, Findings], None]

_DRAFTING = ("draft_tokens_external", "lookahead_decoding", "eagle")
_IGNORED_BY_BUILD_CONFIG = (
    "max_batch_size", "max_input_len", "max_seq_len", "max_beam_width", "max_num_tokens", "opt_num_tokens",
    "max_draft_len", "speculative_decoding_mode", "gather_context_logits", "gather_all_token_logits",
)  # fmt: skip
_PRECISIONS = ("use_weight_only", "smoothquant", "use_fp8", "use_nvfp4", "use_fp8_rowwise", "use_qserve")


def check_rules(calls: list[Call], gpus: int | None, findings: Findings, *, chunked: bool) -> None:
    """Report contradictions; `gpus` is how many there are, None when that is not known.

    `chunked`: whether the engine is served with chunked context. Nothing is concluded from a value that was
    reported as wrong.
    """
    for call in calls:
        for rule in _rules(call, gpus, chunked=chunked):
            with suppress(ValueRefused):
                rule(call, findings)


def _rules(call: Call, gpus: int | None, *, chunked: bool) -> tuple[_Rule, ...]:
    match call.tool:
        case "trtllm-build" if "build_config" in call.arguments:
            return (*_OF_ANY_BUILD, *_BESIDE_A_BUILD_CONFIG)
        case "trtllm-build":
            return (*_OF_ANY_BUILD, *_OF_A_BUILD, partial(_prompts_capped, chunked=chunked))
        case "quantize.py":
            return (partial(_enough_gpus, gpus=gpus), _experts_fit, *_OF_QUANTIZE)
        case _:
            return (partial(_enough_gpus, gpus=gpus), _experts_fit, *_OF_CONVERT)


def _enabled(call: Call, name: str) -> bool:
    return call.value(name) not in (None, "disable", False)


def _contradict(call: Call, name: str, reason: str, fix: str, findings: Findings) -> None:
    error = ArgumentsContradict(argument=call.written(name), reason=reason, fix=fix)
    findings.error(call.place_of(name), error)


def _in_vain(call: Call, name: str, reason: str, findings: Findings, instead: str = "") -> None:
    place = call.place_of(name)
    written = place[-1] if place else name
    findings.warn(place, ArgumentWithoutEffect(argument=f"--{written}", reason=reason, instead=instead))


def _streamingllm(call: Call, findings: Findings) -> None:
    if _enabled(call, "streamingllm"):
        reason = "it is a way to keep an endless cache, not token streaming, which is always on"
        error = ArgumentRefused(argument="--streamingllm", reason=reason)
        findings.error(call.place_of("streamingllm"), error)


def _logits_and_drafts(name: str, call: Call, findings: Findings) -> None:
    if call.set(name) and call.size("max_draft_len") > 0:
        _contradict(call, name, "max_draft_len is above 0", "Remove one of them", findings)


def _class_without_name(call: Call, findings: Findings) -> None:
    if call.set("model_cls_file") and not call.set("model_cls_name"):
        reason = "model_cls_name is missing"
        _contradict(call, "model_cls_file", reason, "Name the class of the model", findings)


def _plugin_without_fused_mlp(name: str, call: Call, findings: Findings) -> None:
    if _enabled(call, name) and not _enabled(call, "use_fused_mlp"):
        reason = "use_fused_mlp is disabled"
        _contradict(call, name, reason, "Write use_fused_mlp: enable", findings)


def _buffer_without_fusion(call: Call, findings: Findings) -> None:
    if _enabled(call, "user_buffer") and not _enabled(call, "reduce_fusion"):
        reason = "reduce_fusion is disabled"
        _contradict(call, "user_buffer", reason, "Write reduce_fusion: enable", findings)


def _lora_without_plugin(call: Call, findings: Findings) -> None:
    if call.set("lora_target_modules") and not _enabled(call, "lora_plugin"):
        _in_vain(call, "lora_target_modules", "lora_plugin is disabled", findings, ", or set lora_plugin")


def _set_by_build_config(name: str, call: Call, findings: Findings) -> None:
    if call.set("build_config") and call.set(name):
        _in_vain(call, name, "build_config sets it", findings)


def _profiles(call: Call, findings: Findings) -> None:
    if _enabled(call, "multiple_profiles") and call.set("opt_num_tokens"):
        reason = "opt_num_tokens is set"
        _contradict(call, "multiple_profiles", reason, "Remove one of them", findings)


def _drafts_without_length(call: Call, findings: Findings) -> None:
    if call.value("speculative_decoding_mode") in _DRAFTING and call.size("max_draft_len") < 1:
        reason = "max_draft_len is 0"
        _contradict(call, "speculative_decoding_mode", reason, "Set max_draft_len", findings)


def _packed(call: Call) -> bool:
    return _enabled(call, "context_fmha") and _enabled(call, "remove_input_padding")


def _input_length(call: Call, findings: Findings) -> None:
    counted = call.set("max_seq_len") and call.place_of("max_seq_len")[-1:] == ("max_output_len",)
    if not call.set("max_input_len") or counted:  # then it is part of max_seq_len
        return
    if _packed(call):
        reason = "max_seq_len and max_num_tokens limit prompts when input is packed, as it is here"
        limits = "" if call.set("max_num_tokens") else "; set max_num_tokens to limit prompts"
        _in_vain(call, "max_input_len", reason, findings, limits)
    elif call.set("max_seq_len") and call.size("max_input_len") > (total := call.size("max_seq_len")):
        _in_vain(call, "max_input_len", f"max_seq_len limits prompts to {total - 1} tokens", findings)


def _prompts_capped(call: Call, findings: Findings, *, chunked: bool) -> None:
    if chunked or not call.set("max_seq_len") or not _packed(call):
        return
    total, limit = call.size("max_seq_len"), call.size("max_num_tokens")
    if limit < total - 1:
        place = call.place_of("max_num_tokens" if call.set("max_num_tokens") else "max_seq_len")
        findings.warn(place or call.place_of("max_seq_len"), PromptCapped(limit=limit, max_seq_len=total))


def _enough_gpus(call: Call, findings: Findings, *, gpus: int | None) -> None:
    if gpus is not None and (needed := call.ranks()) > gpus:
        findings.warn(call.place_of("tp_size"), RanksExceedGpus(ranks=needed, gpus=gpus))


def _experts_fit(call: Call, findings: Findings) -> None:
    if not call.table.find("moe_tp_size"):
        return
    tp, moe = call.size("tp_size"), (call.size("moe_tp_size"), call.size("moe_ep_size"))
    if min(moe) > 0 and moe[0] * moe[1] != tp:
        reason = f"moe_tp_size times moe_ep_size is {moe[0] * moe[1]}, but tp_size is {tp}"
        name = "moe_ep_size" if call.set("moe_ep_size") else "moe_tp_size"
        _contradict(call, name, reason, "Make the product equal tp_size", findings)


def _format_of_others(call: Call, findings: Findings) -> None:
    if call.value("export_format") == "hf":
        reason = "trtllm-build only reads the format tensorrt_llm"
        _contradict(call, "export_format", reason, "Remove it", findings)


def _block_size_of_awq(call: Call, findings: Findings) -> None:
    qformat = str(call.value("qformat"))
    if call.set("awq_block_size") and "awq" not in qformat and not call.set("autoq_format"):
        _in_vain(call, "awq_block_size", f"the qformat is {qformat}", findings)


def _head_of_fp8(call: Call, findings: Findings) -> None:
    qformat = str(call.value("qformat"))
    if call.set("quantize_lm_head") and qformat != "fp8":
        _in_vain(call, "quantize_lm_head", f"the qformat is {qformat}", findings)


def _bits_without_autoq(call: Call, findings: Findings) -> None:
    if call.set("auto_quantize_bits") and not call.set("autoq_format"):
        _in_vain(call, "auto_quantize_bits", "autoq_format is not set", findings, ", or set autoq_format")


def _two_precisions(call: Call, findings: Findings) -> None:
    ways = [name for name in _PRECISIONS if name not in call.refused and call.set(name)]
    if "use_fp8_rowwise" in ways and "use_fp8" in ways:
        ways.remove("use_fp8")
    if len(ways) > 1:
        reason = f"{ways[0]} is set, and weights have only one precision"
        _contradict(call, ways[1], reason, "Keep one of them", findings)


def _two_caches(call: Call, findings: Findings) -> None:
    if call.set("int8_kv_cache") and call.set("fp8_kv_cache"):
        reason = "int8_kv_cache is set, and the cache has only one precision"
        _contradict(call, "fp8_kv_cache", reason, "Keep one of them", findings)


def _scales_without_smoothquant(name: str, call: Call, findings: Findings) -> None:
    if call.set(name) and not any(map(call.set, ("smoothquant", "use_qserve", "use_fp8_rowwise"))):
        _in_vain(call, name, "smoothquant is not set", findings, ", or set smoothquant")


def _precision_without_weight_only(call: Call, findings: Findings) -> None:
    if call.set("weight_only_precision") and not call.set("use_weight_only"):
        reason = "use_weight_only is not set"
        _in_vain(call, "weight_only_precision", reason, findings, ", or set use_weight_only")


def _sharding_without_embedding(call: Call, findings: Findings) -> None:
    if call.set("embedding_sharding_dim") and not call.set("use_parallel_embedding"):
        _in_vain(call, "embedding_sharding_dim", "use_parallel_embedding is not set", findings)


def _smoothquant_share(call: Call, findings: Findings) -> None:
    if call.set("smoothquant") and not 0 <= float(str(share := call.value("smoothquant"))) <= 1:
        wanted = "a number from 0 to 1"
        error = ArgumentInvalid(tool=call.tool, argument="smoothquant", value=share, wanted=wanted)
        findings.error(call.place_of("smoothquant"), error)


_OF_ANY_BUILD = (
    _streamingllm,
    partial(_logits_and_drafts, "gather_context_logits"),
    partial(_logits_and_drafts, "gather_all_token_logits"),
    _class_without_name,
    partial(_plugin_without_fused_mlp, "gemm_swiglu_plugin"),
    partial(_plugin_without_fused_mlp, "low_latency_gemm_swiglu_plugin"),
    _buffer_without_fusion,
    _lora_without_plugin,
)
_OF_A_BUILD = (_profiles, _drafts_without_length, _input_length)
_BESIDE_A_BUILD_CONFIG = tuple(partial(_set_by_build_config, name) for name in _IGNORED_BY_BUILD_CONFIG)
_OF_QUANTIZE = (_format_of_others, _block_size_of_awq, _head_of_fp8, _bits_without_autoq)
_OF_CONVERT = (
    _two_precisions,
    _two_caches,
    partial(_scales_without_smoothquant, "per_channel"),
    partial(_scales_without_smoothquant, "per_token"),
    _precision_without_weight_only,
    _sharding_without_embedding,
    _smoothquant_share,
)
