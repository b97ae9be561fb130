"""The argument parsers of the tools: names, types, choices and defaults as TensorRT-LLM 1.2.1 has them.

From tensorrt_llm/commands/build.py, tensorrt_llm/plugin/plugin.py, examples/quantization/quantize.py and
examples/models/core/*/convert_checkpoint.py.
"""

from __future__ import annotations

import argparse

SWITCH = ("enable", "disable")
PLUGIN = ("auto", "float16", "float32", "bfloat16", "int32", "disable")
FP8 = ("fp8", "disable")
DTYPES = ("auto", "float16", "bfloat16", "float32")


def trtllm_build() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="trtllm-build")
    add = parser.add_argument
    add("--checkpoint_dir")
    add("--model_config")
    add("--build_config")
    add("--model_cls_file")
    add("--model_cls_name")
    add("--output_dir", default="engine_outputs")
    add("--max_batch_size", type=int, default=2048)
    add("--max_input_len", type=int, default=1024)
    add("--max_seq_len", "--max_decoder_seq_len", type=int)
    add("--max_beam_width", type=int, default=1)
    add("--max_num_tokens", type=int, default=8192)
    add("--opt_num_tokens", type=int)
    add("--max_encoder_input_len", type=int, default=1024)
    add("--max_prompt_embedding_table_size", "--max_multimodal_len", type=int, default=0)
    add(
        "--kv_cache_type",
        type=str.lower,
        default=argparse.SUPPRESS,
        choices=("continuous", "paged", "disabled"),
    )
    add("--paged_kv_cache", default=argparse.SUPPRESS)
    add("--input_timing_cache")
    add("--output_timing_cache", default="model.cache")
    add("--profiling_verbosity", default="layer_names_only", choices=("layer_names_only", "detailed", "none"))
    add("--strip_plan", action="store_true")
    add("--weight_sparsity", action="store_true")
    add("--weight_streaming", action="store_true")
    add("--fast_build", action="store_true")
    add("--workers", type=int, default=1)
    add(
        "--log_level",
        default="info",
        choices=("internal_error", "error", "warning", "info", "verbose", "debug", "trace"),
    )
    add("--enable_debug_output", action="store_true")
    add("--visualize_network")
    add("--dry_run", action="store_true")
    add("--monitor_memory", action="store_true")
    add("--logits_dtype", choices=("float16", "float32"))
    add("--gather_context_logits", action="store_true")
    add("--gather_generation_logits", action="store_true")
    add("--gather_all_token_logits", action="store_true")
    add("--lora_dir", nargs="+")
    add("--lora_ckpt_source", default="hf", choices=("hf", "nemo"))
    add(
        "--lora_target_modules",
        nargs="+",
        choices=(
            "attn_qkv",
            "attn_q",
            "attn_k",
            "attn_v",
            "attn_dense",
            "mlp_h_to_4h",
            "mlp_4h_to_h",
            "mlp_gate",
            "cross_attn_qkv",
            "cross_attn_q",
            "cross_attn_k",
            "cross_attn_v",
            "cross_attn_dense",
            "moe_h_to_4h",
            "moe_4h_to_h",
            "moe_gate",
            "moe_router",
            "mlp_router",
            "mlp_gate_up",
        ),
    )
    add("--max_lora_rank", type=int, default=64)
    add(
        "--speculative_decoding_mode",
        choices=("draft_tokens_external", "lookahead_decoding", "medusa", "explicit_draft_tokens", "eagle"),
    )
    add("--max_draft_len", type=int, default=0)
    add("--bert_attention_plugin", default="auto", choices=PLUGIN)
    add("--gpt_attention_plugin", default="auto", choices=PLUGIN)
    add(
        "--gemm_plugin",
        choices=("auto", "float16", "float32", "bfloat16", "int32", "fp8", "nvfp4", "disable"),
    )
    add("--gemm_swiglu_plugin", default="disable", choices=FP8)
    add("--fp8_rowwise_gemm_plugin", default="disable", choices=PLUGIN)
    add("--nccl_plugin", default="auto", choices=PLUGIN)
    add("--lora_plugin", default="disable", choices=PLUGIN)
    add("--dora_plugin", default="disable", choices=SWITCH)
    add("--moe_plugin", default="auto", choices=PLUGIN)
    add("--mamba_conv1d_plugin", default="auto", choices=PLUGIN)
    add("--low_latency_gemm_plugin", default="disable", choices=FP8)
    add("--low_latency_gemm_swiglu_plugin", default="disable", choices=FP8)
    add("--gemm_allreduce_plugin", default="disable", choices=("float16", "bfloat16", "disable"))
    add("--context_fmha", default="enable", choices=SWITCH)
    add("--bert_context_fmha_fp32_acc", default="disable", choices=SWITCH)
    add("--remove_input_padding", default="enable", choices=SWITCH)
    add("--norm_quant_fusion", default="disable", choices=SWITCH)
    add("--reduce_fusion", default="disable", choices=SWITCH)
    add("--user_buffer", default="disable", choices=SWITCH)
    add("--tokens_per_block", type=int, default=32)
    add("--use_paged_context_fmha", default="enable", choices=SWITCH)
    add("--use_fp8_context_fmha", default="enable", choices=SWITCH)
    add("--fuse_fp4_quant", default="disable", choices=SWITCH)
    add("--multiple_profiles", default="disable", choices=SWITCH)
    add("--paged_state", default="enable", choices=SWITCH)
    add("--streamingllm", default="disable", choices=SWITCH)
    add("--use_fused_mlp", default="enable", choices=SWITCH)
    add("--pp_reduce_scatter", default="disable", choices=SWITCH)
    return parser


def quantize() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="quantize.py")
    add = parser.add_argument
    add("--model_dir")
    add("--nemo_ckpt_path")
    add("--decoder_type", default="gptnext", choices=("gptnext", "llama"))
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--device_map", default="auto", choices=("auto", "sequential", "cpu", "gpu"))
    add("--calib_dataset", default="cnn_dailymail")
    add("--calib_tp_size", type=int, default=1)
    add("--calib_pp_size", type=int, default=1)
    add("--dtype", default="auto", choices=("auto", "float16", "bfloat16", "float32"))
    add(
        "--qformat",
        default="full_prec",
        choices=(
            "nvfp4",
            "fp8",
            "fp8_pc_pt",
            "int8_sq",
            "int4_awq",
            "w4a8_awq",
            "int8_wo",
            "int4_wo",
            "full_prec",
        ),
    )
    add("--seed", type=int, default=1234)
    add("--tokenizer_max_seq_length", type=int, default=2048)
    add("--batch_size", type=int, default=1)
    add("--calib_size", type=int, default=512)
    add("--calib_max_seq_length", type=int, default=512)
    add("--output_dir", default="exported_model")
    add("--tp_size", type=int, default=1)
    add("--pp_size", type=int, default=1)
    add("--cp_size", type=int, default=1)
    add("--awq_block_size", type=int, default=128)
    add("--kv_cache_dtype", choices=("int8", "fp8"))
    add("--quantize_lm_head", action="store_true")
    add("--num_medusa_heads", type=int, default=4)
    add("--num_medusa_layers", type=int, default=1)
    add("--max_draft_len", type=int, default=63)
    add("--medusa_hidden_act", default="silu")
    add("--medusa_model_dir")
    add("--quant_medusa_head", action="store_true")
    add("--autoq_format")
    add("--auto_quantize_bits", type=float)
    add("--export_format", default="tensorrt_llm", choices=("tensorrt_llm", "hf"))
    return parser


def convert_llama() -> argparse.ArgumentParser:
    parser = _convert()
    add = parser.add_argument
    add("--model_dir")
    add("--meta_ckpt_dir")
    add("--cp_size", type=int, default=1)
    add("--moe_tp_size", type=int, default=-1)
    add("--moe_ep_size", type=int, default=-1)
    for name, default in (
        ("vocab_size", 32000), ("n_positions", 2048), ("n_layer", 32), ("n_head", 32), ("n_kv_head", None),
        ("n_embd", 4096), ("inter_size", 11008), ("multiple_of", None), ("calib_size", 512),
        ("calib_max_seq_length", 512), ("group_size", 128), ("moe_num_experts", 0), ("moe_top_k", 0),
    ):  # fmt: skip
        add(f"--{name}", type=int, default=default)
    add("--ffn_dim_multiplier", type=float)
    add("--rms_norm_eps", type=float, default=1e-06)
    add("--disable_weight_only_quant_plugin", action="store_true")
    precisions = ("int8", "int4", "int8_gptq", "int4_gptq", "int4_awq")
    add("--weight_only_precision", default="int8", choices=precisions)
    add("--calib_dataset", default="ccdv/cnn_dailymail")
    for flag in (
        "use_qserve", "per_group", "fp8_kv_cache", "use_fp8", "use_nvfp4", "use_fp8_rowwise",
        "use_meta_fp8_rowwise_recipe", "load_by_shard", "save_config_only", "remove_duplicated_kv_heads",
    ):  # fmt: skip
        add(f"--{flag}", action="store_true")
    add("--quant_ckpt_path")
    add("--hidden_act", default="silu")
    add("--rotary_base", type=float, default=10000.0)
    add("--moe_renorm_mode", type=int, default=1)
    add("--log_level", default="info")
    return parser


def convert_gpt() -> argparse.ArgumentParser:
    parser = _convert()
    add = parser.add_argument
    add("--model_dir")
    add("--nemo_ckpt_path")
    variants = ("gpt2", "santacoder", "starcoder", "starcoder2", "persimmon", "kosmos-2", "nemotron")
    add("--gpt_variant", choices=variants)
    add("--weight_only_precision", default="int8", choices=("int8", "int4"))
    add("--calib_dataset", default="lambada")
    add("--dataset_cache_dir")
    add("--nemo_rename_key", nargs="+", default=[])
    add("--log_level", default="info")
    return parser


def convert_qwen() -> argparse.ArgumentParser:
    parser = _convert()
    add = parser.add_argument
    add("--model_dir", required=True)
    add("--cp_size", type=int, default=1)
    add("--disable_weight_only_quant_plugin", action="store_true")
    precisions = ("int8", "int4", "int4_gptq", "int8_gptq")
    add("--weight_only_precision", default="int8", choices=precisions)
    add("--calib_dataset", default="ccdv/cnn_dailymail")
    add("--per_group", action="store_true")
    add("--group_size", type=int, default=128)
    add("--moe_tp_size", type=int, default=-1)
    add("--moe_ep_size", type=int, default=-1)
    return parser


def _convert() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="convert_checkpoint.py")
    add = parser.add_argument
    add("--tp_size", type=int, default=1)
    add("--pp_size", type=int, default=1)
    add("--dtype", default="auto", choices=DTYPES)
    add("--use_weight_only", action="store_true")
    add("--use_parallel_embedding", action="store_true")
    add("--embedding_sharding_dim", type=int, default=0, choices=(0, 1))
    add("--load_model_on_cpu", action="store_true")
    add("--int8_kv_cache", action="store_true")
    add("--per_channel", action="store_true")
    add("--per_token", action="store_true")
    add("--smoothquant", "-sq", type=float)
    add("--output_dir", default="tllm_checkpoint")
    add("--workers", type=int, default=1)
    return parser
