"""Which arguments contradict each other, and which have no effect. Sources: TensorRT-LLM near 1.2.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import (
    ArgumentInvalid,
    ArgumentRefused,
    ArgumentsContradict,
    ArgumentWithoutEffect,
    PromptCapped,
    RanksExceedGpus,
)

if TYPE_CHECKING:
    from builder.engines.tensorrt_llm.call import Call
    from builder.findings import Findings

_DRAFTING = ("draft_tokens_external", "lookahead_decoding", "eagle")
_IGNORED_BY_BUILD_CONFIG = (
    "max_batch_size", "max_input_len", "max_seq_len", "max_beam_width", "max_num_tokens", "opt_num_tokens",
    "max_draft_len", "speculative_decoding_mode", "gather_context_logits", "gather_all_token_logits",
)  # fmt: skip
_PRECISIONS = ("use_weight_only", "smoothquant", "use_fp8", "use_nvfp4", "use_fp8_rowwise", "use_qserve")


def check_rules(calls: list[Call], gpus: int | None, findings: Findings, *, chunked: bool) -> None:
    """Report contradictions; `gpus` is how many there are, None when that is not known.

    `chunked`: whether the engine is served with chunked context.
    """
    for call in calls:
        if call.tool == "trtllm-build":
            _build_contradictions(call, findings)
            if call.set("build_config"):
                _build_ignored(call, findings)
            else:
                _build_drafting(call, findings)
                _build_lengths(call, findings, chunked=chunked)
        else:
            _parallel(call, gpus, findings)
            if call.tool == "quantize.py":
                _quantize(call, findings)
            else:
                _convert(call, findings)


def ranks(calls: list[Call]) -> int:
    """How many ranks the engine has: as the checkpoint was made."""
    made = [call for call in calls if call.tool != "trtllm-build"]
    return made[-1].size("tp_size") * made[-1].size("pp_size") * _cp(made[-1]) if made else 1


def _cp(call: Call) -> int:
    return call.size("cp_size") if call.table.find("cp_size") else 1


def _enabled(call: Call, name: str) -> bool:
    return call.value(name) not in (None, "disable", False)


def _contradict(call: Call, name: str, reason: str, fix: str, findings: Findings) -> None:
    error = ArgumentsContradict(argument=call.written(name), reason=reason, fix=fix)
    findings.error(call.place_of(name), error)


def _in_vain(call: Call, name: str, reason: str, findings: Findings, instead: str = "") -> None:
    error = ArgumentWithoutEffect(argument=f"--{name}", reason=reason, instead=instead)
    findings.warn(call.place_of(name), error)


def _build_contradictions(call: Call, findings: Findings) -> None:
    if _enabled(call, "streamingllm"):
        reason = "it is a way to keep an endless cache, not token streaming, which is always on"
        findings.error(
            call.place_of("streamingllm"), ArgumentRefused(argument="--streamingllm", reason=reason)
        )
    for name in ("gather_context_logits", "gather_all_token_logits"):
        if call.set(name) and call.size("max_draft_len") > 0:
            _contradict(call, name, "max_draft_len is above 0", "Remove one of them", findings)
    if call.set("model_cls_file") and not call.set("model_cls_name"):
        reason = "model_cls_name is missing"
        _contradict(call, "model_cls_file", reason, "Name the class of the model", findings)
    for name in ("gemm_swiglu_plugin", "low_latency_gemm_swiglu_plugin"):
        if _enabled(call, name) and not _enabled(call, "use_fused_mlp"):
            reason = "use_fused_mlp is disabled"
            _contradict(call, name, reason, "Write use_fused_mlp: enable", findings)
    if _enabled(call, "user_buffer") and not _enabled(call, "reduce_fusion"):
        reason = "reduce_fusion is disabled"
        _contradict(call, "user_buffer", reason, "Write reduce_fusion: enable", findings)
    if call.set("lora_target_modules") and not _enabled(call, "lora_plugin"):
        _in_vain(call, "lora_target_modules", "lora_plugin is disabled", findings, ", or set lora_plugin")


def _build_drafting(call: Call, findings: Findings) -> None:
    if _enabled(call, "multiple_profiles") and call.set("opt_num_tokens"):
        reason = "opt_num_tokens is set"
        _contradict(call, "multiple_profiles", reason, "Remove one of them", findings)
    mode = call.value("speculative_decoding_mode")
    if mode in _DRAFTING and call.size("max_draft_len") < 1:
        reason = "max_draft_len is 0"
        _contradict(call, "speculative_decoding_mode", reason, "Set max_draft_len", findings)


def _build_lengths(call: Call, findings: Findings, *, chunked: bool) -> None:
    packed = _enabled(call, "context_fmha") and _enabled(call, "remove_input_padding")
    total = call.size("max_seq_len") if call.set("max_seq_len") else None
    counted = call.set("max_seq_len") and call.place_of("max_seq_len")[-1:] == ("max_output_len",)
    if call.set("max_input_len") and not counted:  # otherwise it is part of max_seq_len
        if packed:
            reason = "max_seq_len and max_num_tokens limit prompts when input is packed, as it is here"
            limits = "" if call.set("max_num_tokens") else "; set max_num_tokens to limit prompts"
            _in_vain(call, "max_input_len", reason, findings, limits)
        elif total is not None and call.size("max_input_len") > total:
            _in_vain(call, "max_input_len", f"max_seq_len limits prompts to {total - 1} tokens", findings)
    limit = call.size("max_num_tokens")
    if packed and not chunked and total is not None and limit < total - 1:
        place = call.place_of("max_num_tokens") if call.set("max_num_tokens") else ()
        findings.warn(place or call.place_of("max_seq_len"), PromptCapped(limit=limit, max_seq_len=total))


def _build_ignored(call: Call, findings: Findings) -> None:
    for name in _IGNORED_BY_BUILD_CONFIG:
        if call.set(name):
            _in_vain(call, name, "build_config sets it", findings)


def _parallel(call: Call, gpus: int | None, findings: Findings) -> None:
    tp = call.size("tp_size")
    needed = tp * call.size("pp_size") * _cp(call)
    if gpus is not None and needed > gpus:
        findings.warn(call.place_of("tp_size"), RanksExceedGpus(ranks=needed, gpus=gpus))
    moe = (call.size("moe_tp_size"), call.size("moe_ep_size"))
    if call.table.find("moe_tp_size") and min(moe) > 0 and moe[0] * moe[1] != tp:
        reason = f"moe_tp_size times moe_ep_size is {moe[0] * moe[1]}, but tp_size is {tp}"
        name = "moe_ep_size" if call.set("moe_ep_size") else "moe_tp_size"
        _contradict(call, name, reason, "Make the product equal tp_size", findings)


def _quantize(call: Call, findings: Findings) -> None:
    qformat = str(call.value("qformat"))
    if call.value("export_format") == "hf":
        reason = "trtllm-build only reads the format tensorrt_llm"
        _contradict(call, "export_format", reason, "Remove it", findings)
    if call.set("awq_block_size") and "awq" not in qformat and not call.set("autoq_format"):
        _in_vain(call, "awq_block_size", f"the qformat is {qformat}", findings)
    if call.set("quantize_lm_head") and qformat != "fp8":
        _in_vain(call, "quantize_lm_head", f"the qformat is {qformat}", findings)
    if call.set("auto_quantize_bits") and not call.set("autoq_format"):
        _in_vain(call, "auto_quantize_bits", "autoq_format is not set", findings, ", or set autoq_format")


def _convert(call: Call, findings: Findings) -> None:
    ways = [name for name in _PRECISIONS if call.set(name)]
    if "use_fp8_rowwise" in ways and "use_fp8" in ways:
        ways.remove("use_fp8")
    if len(ways) > 1:
        reason = f"{ways[0]} is set, and weights have only one precision"
        _contradict(call, ways[1], reason, "Keep one of them", findings)
    if call.set("int8_kv_cache") and call.set("fp8_kv_cache"):
        reason = "int8_kv_cache is set, and the cache has only one precision"
        _contradict(call, "fp8_kv_cache", reason, "Keep one of them", findings)
    for name in ("per_channel", "per_token"):
        if call.set(name) and not {"smoothquant", "use_qserve", "use_fp8_rowwise"} & set(ways):
            _in_vain(call, name, "smoothquant is not set", findings, ", or set smoothquant")
    if call.set("weight_only_precision") and not call.set("use_weight_only"):
        reason = "use_weight_only is not set"
        _in_vain(call, "weight_only_precision", reason, findings, ", or set use_weight_only")
    if call.set("embedding_sharding_dim") and not call.set("use_parallel_embedding"):
        _in_vain(call, "embedding_sharding_dim", "use_parallel_embedding is not set", findings)
    if call.set("smoothquant") and not 0 <= _number(share := call.value("smoothquant")) <= 1:
        error = ArgumentInvalid(
            tool=call.tool, argument="smoothquant", value=share, wanted="a number from 0 to 1"
        )
        findings.error(call.place_of("smoothquant"), error)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0
