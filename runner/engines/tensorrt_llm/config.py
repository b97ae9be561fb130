"""From the parameters of a config to `executor.ExecutorConfig`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_POLICIES = {"guaranteed_no_evict": "GUARANTEED_NO_EVICT", "max_utilization": "MAX_UTILIZATION"}
_MODES = {"auto": "Auto", "top_k": "TopK", "top_p": "TopP", "top_k_top_p": "TopKTopP"}
_KV_CACHE = {
    "max_tokens_in_paged_kv_cache": "max_tokens",
    "max_attention_window_size": "max_attention_window",
    "kv_cache_free_gpu_mem_fraction": "free_gpu_memory_fraction",
    "kv_cache_host_memory_bytes": "host_cache_size",
    "kv_cache_onboard_blocks": "onboard_blocks",
    "enable_kv_cache_reuse": "enable_block_reuse",
}
_KNOBS = ("multi_block_mode", "enable_context_fmha_fp32_acc")
_KNOB_ATTRIBUTES = ("cuda_graph_mode", "cuda_graph_cache_size")  # its constructor does not take them


def executor_config(
    executor: ModuleType, values: dict[str, Any], hosts: int = 1, ranks_of_host: int = 1
) -> Any:
    """The ExecutorConfig for the `values` of `parse_parameters`; what is not set keeps its default.

    On several hosts, each rank has the GPU of its place there; TensorRT-LLM would assume eight per host.
    Raises RuntimeError when the executor refuses a value.
    """
    options: dict[str, Any] = {
        "max_beam_width": 1,
        "batching_type": executor.BatchingType.INFLIGHT,
        "kv_cache_config": executor.KvCacheConfig(
            **{theirs: values[ours] for ours, theirs in _KV_CACHE.items() if ours in values}
        ),
        "enable_chunked_context": values.get("enable_chunked_context", False),
        "iter_stats_max_iterations": 1,
        # The alternative would be to shorten the longest sequence silently.
        "fail_fast_on_attention_window_too_large": True,
    }
    if "batch_scheduler_policy" in values:
        policy = getattr(executor.CapacitySchedulerPolicy, _POLICIES[values["batch_scheduler_policy"]])
        options["scheduler_config"] = executor.SchedulerConfig(capacity_scheduler_policy=policy)
    if "gpu_device_ids" in values:
        options["parallel_config"] = executor.ParallelConfig(device_ids=values["gpu_device_ids"])
    elif hosts > 1:
        devices = list(range(ranks_of_host))
        options["parallel_config"] = executor.ParallelConfig(device_ids=devices, num_nodes=hosts)
    if "decoding_mode" in values:
        mode = getattr(executor.DecodingMode, _MODES[values["decoding_mode"]])()
        options["decoding_config"] = executor.DecodingConfig(decoding_mode=mode)
    for name in ("gpu_weights_percent", "max_queue_size", "enable_trt_overlap"):
        if name in values:
            options[name] = values[name]
    if any(name in values for name in (*_KNOBS, *_KNOB_ATTRIBUTES)):
        knobs = executor.ExtendedRuntimePerfKnobConfig(
            **{name: values[name] for name in _KNOBS if name in values}
        )
        for name in _KNOB_ATTRIBUTES:
            if name in values:
                setattr(knobs, name, values[name])
        options["extended_runtime_perf_knob_config"] = knobs
    return executor.ExecutorConfig(**options)
