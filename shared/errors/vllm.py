"""E22xx: what vLLM refuses, or where it fails."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class VllmUnknownError(CogTritonError):
    code = "E2200"
    at_start = True
    fixed_by = FixedBy.ENGINE
    message = "vLLM failed to start: {reason}."
    remedy = "Check the log of the engine process."


class VllmNotLoaded(CogTritonError):
    code = "E2201"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "vLLM cannot be loaded: {reason}."
    remedy = "Use the runner image of this engine, on a machine with an NVIDIA driver that is new enough."


class VllmArgumentInvalid(CogTritonError):
    code = "E2202"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The engine arguments cannot be used: {reason}."
    remedy = "Correct them in the config."


class VllmModelNotSupported(CogTritonError):
    code = "E2203"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "vLLM does not support this model: {reason}."
    remedy = "Use a model whose architecture and quantization this version of vLLM supports."


class VllmModelIncomplete(CogTritonError):
    code = "E2204"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The model's files are incomplete: {reason}."
    remedy = "Provide the whole checkpoint: config.json and its weights, as safetensors."


class VllmQuantizationInvalid(CogTritonError):
    code = "E2205"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The quantization does not fit the checkpoint: {reason}."
    remedy = "Leave `quantization` unset: vLLM reads the method from the checkpoint."


class VllmContextTooLong(CogTritonError):
    code = "E2206"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The context is longer than the model supports: {reason}."
    remedy = "Lower `max_model_len`, or leave it unset."


class VllmParallelismInvalid(CogTritonError):
    code = "E2207"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The model cannot be spread over GPUs as configured: {reason}."
    remedy = "Change `tensor_parallel_size` or `pipeline_parallel_size`, or provide more GPUs."


class VllmGpuTooOld(CogTritonError):
    code = "E2208"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The GPU is too old for this model's quantization or data type: {reason}."
    remedy = "Use a newer GPU, or a checkpoint in another precision."


class VllmOutOfMemory(CogTritonError):
    code = "E2209"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The GPU ran out of memory while the model was loaded: {reason}."
    remedy = "Use more or larger GPUs, a quantized checkpoint, or a lower `max_num_seqs`."


class VllmCacheTooSmall(CogTritonError):
    code = "E2210"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The GPU memory left for the KV cache is too small: {reason}."
    remedy = (
        "Lower `max_model_len`, raise `gpu_memory_utilization` if it is below 1 (or `kv_cache_memory_bytes`"
        " if that is set), or use more or larger GPUs."
    )


class VllmGpuMemoryInUse(CogTritonError):
    code = "E2211"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "Less GPU memory is free than `gpu_memory_utilization` asks for: {reason}."
    remedy = "End other processes that hold some, or lower `gpu_memory_utilization`."


class VllmStartTimedOut(CogTritonError):
    code = "E2212"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "vLLM did not become ready in time: {reason}."
    remedy = (
        "Raise VLLM_ENGINE_READY_TIMEOUT_S (seconds) and ENGINE_START_TIMEOUT, or check the log for what "
        "takes so long."
    )


class VllmAdapterInvalid(CogTritonError):
    code = "E2213"
    fixed_by = FixedBy.OPERATOR
    message = 'The adapter "{name}" cannot be used: {reason}.'
    remedy = (
        "Provide a LoRA adapter that the runner can read and that was trained for this model, or raise "
        "`max_lora_rank`."
    )


class VllmAdaptersInUse(CogTritonError):
    code = "E2214"
    fixed_by = FixedBy.OPERATOR
    message = "The adapter cannot be loaded now: {reason}."
    remedy = "Try again later; `max_cpu_loras` says how many adapters are held at the same time."


class VllmGpusNotConnected(CogTritonError):
    code = "E2215"
    at_start = True
    fixed_by = FixedBy.OPERATOR
    message = "The GPUs cannot exchange data: {reason}."
    remedy = (
        "Run the container with more shared memory (--shm-size=1g) and all of its GPUs, and check them with"
        " nvidia-smi; with NCCL_DEBUG=INFO, NCCL says more in the log."
    )
