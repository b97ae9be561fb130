"""E25xx: what TensorRT-LLM's executor refuses, or where it fails."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class TensorRTLLMError(CogTritonError):
    code = "E2500"
    fixed_by = FixedBy.ENGINE
    message = "TensorRT-LLM failed: {reason}."
    remedy = "Check the log of the engine process."


class ExecutorQueueFull(CogTritonError):
    code = "E2501"
    fixed_by = FixedBy.USER
    message = "The limit on requests in TensorRT-LLM's queue, {limit}, is reached."
    remedy = "Try again later."


class EngineOfAnotherVersion(CogTritonError):
    code = "E2502"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine was built for another version of TensorRT or TensorRT-LLM: {reason}."
    remedy = "Build it again with the builder of this version."


class EngineOfAnotherGpu(CogTritonError):
    code = "E2503"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine was built for compute capability {built}; the GPU here has {present}."
    remedy = "Build it again on a GPU like the one here, or serve it on a GPU like the one it was built on."


class RanksMismatch(CogTritonError):
    code = "E2504"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine does not fit the processes and GPUs that it is spread over: {reason}."
    remedy = "Run it with as many GPUs as it was built for; leave WORLD_SIZE unset or set it to that number."


class ServerParameterInvalid(CogTritonError):
    code = "E2505"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The parameter {parameter} of server.tensorrt_llm is {value!r}, but {reason}."
    remedy = "See docs/tensorrt_llm.md for the values that it may have."


class TensorRTLLMNotLoaded(CogTritonError):
    code = "E2506"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "TensorRT-LLM cannot be loaded: {reason}."
    remedy = "Use the runner image of this engine, on a machine with an NVIDIA driver."


class GpuMemoryTooSmall(CogTritonError):
    code = "E2507"
    fixed_by = FixedBy.OPERATOR
    message = "The GPU has too little free memory for this engine: {reason}."
    remedy = (
        "Use a larger GPU, end other processes that use it, or lower kv_cache_free_gpu_mem_fraction or"
        " max_attention_window_size."
    )
