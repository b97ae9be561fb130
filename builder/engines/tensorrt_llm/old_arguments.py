"""Arguments of older releases, and their replacements in TensorRT-LLM 1.2.1.

Sources: hf_gpt_convert.py and build.py of examples/gpt and examples/llama before 0.8, and trtllm-build of 0.8
to 1.0, in NVIDIA/TensorRT-LLM.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Renamed:
    """The same thing under another name."""

    name: str
    bare: str | None = None  # the value of what was a flag
    of_checkpoint: bool = False  # it is decided when the checkpoint is made


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that no longer needs an argument."""

    reason: str


@dataclass(frozen=True, slots=True)
class Removed:
    """Something that the author must set elsewhere."""

    reason: str


Rule = Renamed | Dropped | Removed

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}

_ALWAYS_ON = Dropped("it is always on")
_MULTI_BLOCK = Dropped("the runner sets it: multi_block_mode of server.tensorrt_llm, which is on by default")
_FP32_ACCUMULATION = Dropped(
    "the runner sets it: enable_context_fmha_fp32_acc of server.tensorrt_llm, which is off by default"
)
_FROM_MODEL = Dropped("it is read from the model")
_GONE = Dropped("it no longer exists")
_MADE = Removed("the checkpoint decides it; set it in convert_to_ft or quantize")
_PARALLEL = Removed("set tp_size and pp_size where the checkpoint is made")

_CONVERT: dict[str, Rule] = {
    "in-file": Renamed("model_dir"),
    "i": Renamed("model_dir"),
    "out-dir": Renamed("output_dir"),
    "o": Renamed("output_dir"),
    "tensor-parallelism": Renamed("tp_size"),
    "tp": Renamed("tp_size"),
    "storage-type": Renamed("dtype"),
    "t": Renamed("dtype"),
    "processes": Renamed("workers"),
    "p": Renamed("workers"),
    "calibrate-kv-cache": Renamed("int8_kv_cache"),
    "kv": Renamed("int8_kv_cache"),
    "sq": Renamed("smoothquant"),
    "model": Renamed("gpt_variant"),
    "dataset-cache-dir": Renamed("dataset_cache_dir"),
    "load-model-on-cpu": Renamed("load_model_on_cpu"),
    "convert-model-on-cpu": Dropped("load_model_on_cpu does it"),
}
_PLUGINS: dict[str, Rule] = {
    "use_gpt_attention_plugin": Renamed("gpt_attention_plugin", bare="auto"),
    "use_gemm_plugin": Renamed("gemm_plugin", bare="auto"),
}
_NEVER_MORE: dict[str, Rule] = {
    "use_inflight_batching": _ALWAYS_ON,
    "strongly_typed": _ALWAYS_ON,
    "multi_block_mode": _MULTI_BLOCK,
    "enable_xqa": _ALWAYS_ON,
    "use_custom_all_reduce": Dropped("TensorRT-LLM decides it itself"),
    "attention_qk_half_accumulation": _GONE,
    "context_fmha_fp32_acc": _FP32_ACCUMULATION,
    "use_context_fmha_for_generation": _GONE,
    "lookup_plugin": _GONE,
    "builder_opt": _GONE,
    "builder_force_num_profiles": _GONE,
    "gpus_per_node": Dropped("it is detected"),
    "cluster_key": _GONE,
}
_TRTLLM_BUILD: dict[str, Rule] = {
    **_PLUGINS,
    **_NEVER_MORE,
    "tp_size": _MADE,
    "pp_size": _MADE,
    "world_size": _PARALLEL,
    "dtype": _MADE,
    "model_dir": Removed("checkpoint_dir is what an earlier step wrote"),
    "auto_parallel": _PARALLEL,
}
_BUILD_PY: dict[str, Rule] = {
    **_PLUGINS,
    **_NEVER_MORE,
    "model_dir": Renamed("checkpoint_dir"),
    "ft_model_dir": Renamed("checkpoint_dir"),
    "enable_context_fmha": Renamed("context_fmha", bare="enable"),
    "enable_context_fmha_fp32_acc": _FP32_ACCUMULATION,
    "remove_input_padding": Renamed("remove_input_padding", bare="enable"),
    "use_paged_context_fmha": Renamed("use_paged_context_fmha", bare="enable"),
    "paged_kv_cache": Renamed("kv_cache_type", bare="paged"),
    "timing_cache": Renamed("input_timing_cache"),
    "parallel_build": Dropped("workers sets how many GPUs build in parallel"),
    "use_smooth_quant": Dropped("smoothquant sets it where the checkpoint is made"),
    "use_layernorm_plugin": _GONE,
    "use_rmsnorm_plugin": _GONE,
    "use_lookup_plugin": _GONE,
    "use_embedding_sharing": _GONE,
    "random_seed": _GONE,
    "visualize": _GONE,
    "world_size": Renamed("tp_size", of_checkpoint=True),
    "enable_fp8": Renamed("use_fp8", of_checkpoint=True),
    **{
        name: Renamed(name, of_checkpoint=True)
        for name in (
            "dtype", "tp_size", "pp_size", "use_weight_only", "weight_only_precision", "per_channel",
            "per_token", "per_group", "group_size", "int8_kv_cache", "fp8_kv_cache", "use_parallel_embedding",
            "embedding_sharding_dim", "rotary_base", "quant_ckpt_path", "meta_ckpt_dir",
        )
    },
    **dict.fromkeys(
        (
            "vocab_size", "n_layer", "n_positions", "n_embd", "n_head", "n_kv_head", "hidden_act",
            "rotary_pct", "rotary_scaling", "inter_size", "multiple_of", "ffn_dim_multiplier",
            "rms_norm_eps", "no_bias", "multi_query_mode",
        ),
        _FROM_MODEL,
    ),
}  # fmt: skip

RULES: dict[str, dict[str, Rule]] = {
    "hf_gpt_convert.py": _CONVERT,
    "hf_llama_convert.py": _CONVERT,
    # Written for the old scripts, where nobody noticed.
    "convert_checkpoint.py": {"storage-type": Renamed("dtype"), "storage_type": Renamed("dtype")},
    "quantize.py": {},
    "trtllm-build": _TRTLLM_BUILD,
    "build.py": _BUILD_PY,
}
"""The rule for each argument, by the script or program in the config."""

MAX_INPUT_LEN = {"gpt": 200, "llama": 2048}
"""Default of build.py by example; max_output_len counted from there. That of trtllm-build was 1024."""
