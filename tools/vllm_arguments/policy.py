"""Which of vLLM's engine arguments people may set. Anything not listed here cannot be set."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOGS = "the runner has logs of its own"
_METRICS = "the runner has metrics of its own"
_TEXTS = "only texts are served"
_TOKENIZER = "the runner makes tokens and texts itself"
_TRACES = "the runner has no traces of the engine"

# Keys of our config that become an argument: they are not set twice.
OWN = {
    "model": "model",
    "revision": "revision",
    "dtype": "dtype",
    "quantization": "quantization",
    "max_model_len": "max_model_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "speculative_config": "speculative_config",
}

ALLOWED = _names("""
    all2all_backend allow_deprecated_quantization async_scheduling attention_backend attention_config
    block_size compilation_config cpu_distributed_timeout_seconds cpu_offload_gb cpu_offload_params
    cudagraph_capture_sizes cudagraph_metrics dbo_decode_token_threshold dbo_prefill_token_threshold
    dcp_q_replicate decode_context_parallel_size disable_cascade_attn disable_custom_all_reduce
    disable_hybrid_kv_cache_manager disable_log_stats disable_sliding_window distributed_executor_backend
    distributed_timeout_seconds enable_batch_sharded_sampling enable_chunked_prefill enable_dbo enable_eplb
    enable_expert_parallel enable_flashinfer_autotune enable_hc_sp enable_layerwise_nvtx_tracing
    enable_logging_iteration_details enable_lora enable_mamba_cache_stochastic_rounding
    enable_mamba_shared_prefix_checkpoint enable_mfu_metrics enable_mixed_moe_lora_format
    enable_moe_shared_loras enable_prefix_caching enforce_eager eplb_config expert_placement_strategy
    fully_sharded_loras gdn_prefill_backend gpu_memory_utilization hf_overrides ignore_patterns
    jit_monitor_mode jit_monitor_verbose kda_decode_backend kda_prefill_backend kernel_config kv_cache_dtype
    kv_cache_dtype_skip_layers kv_cache_memory_bytes kv_cache_metrics kv_cache_metrics_sample
    kv_offloading_backend kv_offloading_size kv_sharing_fast_prefill language_model_only limit_mm_per_prompt
    linear_backend load_format logprobs_mode long_prefill_token_threshold
    long_prefill_token_threshold_adaptive lora_dtype lora_target_modules mamba_backend mamba_block_size
    mamba_cache_dtype mamba_cache_mode mamba_cache_philox_rounds mamba_ssm_cache_dtype mamba_ssu_algorithm
    max_cpu_loras max_cudagraph_capture_size max_logprobs max_lora_rank max_loras max_num_active_seqs
    max_num_batched_tokens max_num_scheduled_tokens max_num_seqs max_parallel_loading_workers model_impl
    moe_backend num_gpu_blocks_override offload_backend offload_group_size offload_num_in_group offload_params
    offload_prefetch_step optimization_level performance_mode prefill_schedule_interval
    prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit quantization_config
    replayssm_buffer_len safetensors_load_strategy safetensors_prefetch_block_size
    safetensors_prefetch_num_threads scheduler_reserve_full_isl scheduling_policy seed skip_mm_profiling
    sparse_indexer_topk_backend specialize_active_lora structured_outputs_config swa_bounded_replay
    ubatch_size use_fp64_gumbel use_replayssm use_tqdm_on_load watermark
    """)

# They run code that a config names: only if the operator's ALLOW_MODEL_CODE allows it.
CODE = _names("""
    additional_config code_revision io_processor_plugin kv_transfer_config logits_processors
    model_class_overrides reasoning_parser_plugin scheduler_cls trust_remote_code worker_cls
    worker_extension_cls
    """)

# Of an argument that is an object: the keys that may be set. The others name code, paths, or what vLLM fills.
MEMBERS = {
    "attention_config": _names("""
        backend flash_attn_max_num_splits_for_cuda_graph flash_attn_version
        """),
    "compilation_config": _names("""
        compile_ranges_endpoints compile_sizes cudagraph_capture_sizes cudagraph_mode
        cudagraph_num_of_warmups cudagraph_specialize_lora custom_ops max_cudagraph_capture_size mode
        use_inductor_graph_partition
        """),
    "kernel_config": _names("enable_cutedsl_warmup enable_flashinfer_autotune linear_backend moe_backend"),
    "eplb_config": _names(
        "log_balancedness num_redundant_experts policy step_interval use_async window_size"
    ),
    "structured_outputs_config": _names(
        "backend disable_additional_properties disable_any_whitespace enable_in_reasoning"
    ),
    "speculative_config": _names("""
        draft_sample_method draft_tensor_parallel_size max_model_len method model num_speculative_tokens
        prompt_lookup_max prompt_lookup_min quantization rejection_sample_method revision
        use_heterogeneous_vocab
        """),
}

# Packages that the images lack, and the values that need one of them.
PACKAGES = {
    "arctic-inference": {"speculative_config.method": {"suffix"}},
    "conch-triton-kernels": {"linear_backend": {"conch"}, "kernel_config.linear_backend": {"conch"}},
    "fbgemm-gpu": {"linear_backend": {"fbgemm"}, "kernel_config.linear_backend": {"fbgemm"}},
    "hpc-ops": {
        "attention_backend": {"HPC_ATTN"},
        "attention_config.backend": {"HPC_ATTN"},
        "moe_backend": {"hpc"},
        "kernel_config.moe_backend": {"hpc"},
    },
    "lmcache": {"kv_offloading_backend": {"lmcache"}},
    "runai-model-streamer": {"load_format": {"runai_streamer", "runai_streamer_sharded"}},
    "torchao": {"quantization": {"torchao"}, "safetensors_load_strategy": {"torchao"}},
    "xxhash": {"prefix_caching_hash_algo": {"xxhash", "xxhash_cbor"}},
}

# Values that would run code, or need something else that images or archives lack: of a checkpoint in the form
# of Mistral, .pt files or shards of a rank, the builder fetches and packs nothing.
WITHOUT = {
    "attention_backend": frozenset({"CUSTOM"}),
    "attention_config.backend": frozenset({"CUSTOM"}),
    "distributed_executor_backend": frozenset({"external_launcher", "ray"}),
    "load_format": frozenset({"mistral", "modelexpress", "pt", "sharded_state", "tensorizer"}),
    "model_impl": frozenset({"terratorch"}),
    "speculative_config.method": frozenset({"custom_class", "extract_hidden_states"}),
    "structured_outputs_config.backend": frozenset({"lm-format-enforcer", "outlines", "xgrammar"}),
}

# Least values that vLLM's sources do not state; with less, an engine starts with another value or not at all.
MINIMA = {
    "cpu_distributed_timeout_seconds": 1,
    "distributed_timeout_seconds": 1,
    "kv_cache_memory_bytes": 1,
    "max_cpu_loras": 1,
    "max_logprobs": -1,
    "num_gpu_blocks_override": 1,
}

# Arguments of earlier versions that people still have in a model.json, and their replacements. earlier.json
# names all that any release had.
REMOVED = {
    "calculate_kv_scales": None,
    "chat_template_text_format": None,
    "cuda_graph_sizes": "cudagraph_capture_sizes",
    "device": None,
    "disable_async_output_proc": None,
    "disable_image_processor": None,
    "disable_log_requests": None,
    "disable_logprobs_during_spec_decoding": None,
    "disable_mm_preprocessor_cache": None,
    "enable_bf16x3_router_gemm": None,
    "enable_log_requests": None,
    "enable_lora_bias": None,
    "enable_mamba_fine_grained_prefix_cache": None,
    "enable_multimodal_encoder_data_parallel": None,
    "enable_prompt_adapter": None,
    "enable_reasoning": None,
    "engine_use_ray": None,
    "eplb_log_balancedness": "eplb_config: {log_balancedness: ...}",
    "eplb_step_interval": "eplb_config: {step_interval: ...}",
    "eplb_window_size": "eplb_config: {window_size: ...}",
    "forced_num_gpu_blocks": "num_gpu_blocks_override",
    "guided_decoding_backend": None,
    "guided_decoding_disable_additional_properties": (
        "structured_outputs_config: {disable_additional_properties: ...}"
    ),
    "guided_decoding_disable_any_whitespace": "structured_outputs_config: {disable_any_whitespace: ...}",
    "guided_decoding_disable_fallback": None,
    "image_feature_size": None,
    "image_input_shape": None,
    "image_input_type": None,
    "image_processor": None,
    "image_processor_revision": None,
    "image_token_id": None,
    "logits_processor_pattern": None,
    "long_lora_scaling_factors": None,
    "lora_extra_vocab_size": None,
    "max_context_len_to_capture": None,
    "max_log_len": None,
    "max_long_partial_prefills": "long_prefill_token_threshold",
    "max_num_partial_prefills": "long_prefill_token_threshold",
    "max_paddings": None,
    "max_prompt_adapter_token": None,
    "max_prompt_adapters": None,
    "max_seq_len_to_capture": None,
    "multi_step_stream_outputs": None,
    "ngram_prompt_lookup_max": "speculative_config: {prompt_lookup_max: ...}",
    "ngram_prompt_lookup_min": "speculative_config: {prompt_lookup_min: ...}",
    "num_lookahead_slots": "speculative_config: {num_speculative_tokens: ...}",
    "num_redundant_experts": "eplb_config: {num_redundant_experts: ...}",
    "num_scheduler_steps": "async_scheduling",
    "num_speculative_tokens": "speculative_config: {num_speculative_tokens: ...}",
    "override_attention_dtype": None,
    "override_neuron_config": None,
    "override_pooler_config": None,
    "preemption_mode": None,
    "qlora_adapter_name_or_path": "enable_lora",
    "quantization_param_path": None,
    "rope_scaling": "hf_overrides: {rope_parameters: ...}",
    "rope_theta": "hf_overrides: {rope_parameters: ...}",
    "scheduler_delay_factor": None,
    "spec_decoding_acceptance_method": None,
    "speculative_disable_by_batch_size": None,
    "speculative_disable_mqa_scorer": None,
    "speculative_draft_tensor_parallel_size": "speculative_config: {draft_tensor_parallel_size: ...}",
    "speculative_max_model_len": "speculative_config: {max_model_len: ...}",
    "speculative_model": "speculative_config: {model: ...}",
    "speculative_model_quantization": "speculative_config: {quantization: ...}",
    "swap_space": "kv_offloading_size",
    "task": None,
    "tokenizer_pool_extra_config": None,
    "tokenizer_pool_size": None,
    "tokenizer_pool_type": None,
    "typical_acceptance_sampler_posterior_alpha": None,
    "typical_acceptance_sampler_posterior_threshold": None,
    "use_v2_block_manager": None,
    "worker_use_ray": None,
}

# Arguments that vLLM has, that change nothing here, and why. They are left out.
LEFT_OUT = {
    "aggregate_engine_logging": _LOGS,
    "allowed_local_media_path": _TEXTS,
    "allowed_media_domains": _TEXTS,
    "collect_detailed_traces": _TRACES,
    "custom_histogram_buckets": _METRICS,
    "disable_chunked_mm_input": _TEXTS,
    "download_dir": "HF_HOME says where models of the hub are kept",
    "enable_mm_processor_stats": _TEXTS,
    "hf_token": "the variable HF_TOKEN holds the token",
    "interleave_mm_strings": _TEXTS,
    "log_config_file": _LOGS,
    "log_level": _LOGS,
    "logging_config": _LOGS,
    "media_io_kwargs": _TEXTS,
    "mm_processor_cache_gb": _TEXTS,
    "mm_processor_cache_type": _TEXTS,
    "mm_processor_kwargs": _TEXTS,
    "otlp_traces_endpoint": _TRACES,
    "per_request_spec_decode_metrics": _METRICS,
    "ray_workers_use_nsight": "the images have no Ray",
    "renderer_num_workers": _TOKENIZER,
    "served_model_name": "the variable SERVED_MODEL_NAME names the model",
    "show_hidden_metrics_for_version": _METRICS,
    "skip_tokenizer_init": _TOKENIZER,
    "stream_interval": "each step's tokens are sent at once",
    "tokenizer_mode": _TOKENIZER,
}
