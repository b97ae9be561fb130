"""What vLLM says of a failure becomes one of our codes, without a path of the machine in it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from runner.engines.vllm.environment import vllm_environment
from runner.engines.vllm.errors import coded, not_loaded

# As vLLM 0.26 says them, on GPUs too.
TEXTS = [
    (
        (
            "ValidationError: 1 validation error for ModelConfig\n  Value error, Model architectures "
            "['FooForCausalLM'] are not supported for now. Supported architectures: dict_keys(['A', 'B'])"
        ),
        "E2203",
        "Model architectures ['FooForCausalLM'] are not supported",
    ),
    (
        (
            "The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this "
            "architecture."
        ),
        "E2203",
        "model type `foo`",
    ),
    ("Invalid repository ID or local directory specified: '/x/y/engine'.", "E2204", "local directory"),
    (
        "RuntimeError: Cannot find any model weights with `/srv/cache/abc/engine`",
        "E2204",
        "any model weights",
    ),
    (
        (
            "Quantization method specified in the model config (awq) does not match the quantization method "
            "specified in the `quantization` argument (gptq)."
        ),
        "E2205",
        "does not match",
    ),
    ("Unknown quantization method: foo. Must be one of ['awq'].", "E2203", "Unknown quantization method"),
    (
        (
            "User-specified max_model_len (4096) is greater than the derived max_model_len "
            "(max_position_embeddings=256 or model_max_length=None in model's config.json). To allow "
            "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        ),
        "E2206",
        "model_max_length=None in model's config.json). Lower",
    ),
    (
        "Total number of attention heads (7) must be divisible by tensor parallel size (2).",
        "E2207",
        "parallel size (2)",
    ),
    (
        "World size (8) is larger than the number of available GPUs (2) in this node.",
        "E2207",
        "World size (8)",
    ),
    (
        (
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. "
            "Current capability: 75."
        ),
        "E2208",
        "Minimum capability: 89. Current capability: 75",
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        "E2209",
        "Tried to allocate 2.00 GiB",
    ),
    (
        (
            "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache "
            "is needed, which is larger than the available KV cache memory (3.21 GiB). Based on the available "
            "memory, the estimated maximum model length is 26288."
        ),
        "E2210",
        "estimated maximum model length is 26288",
    ),
    ("ValueError: No available memory for the cache blocks. Try increasing", "E2210", "No available memory"),
    (
        (
            "ValueError: Free memory on device cuda:0 (11.20/139.80 GiB) on startup is less than desired GPU memory "
            "utilization (0.92, 128.62 GiB)."
        ),
        "E2211",
        "11.20/139.80 GiB",
    ),
    ("TimeoutError: Timed out waiting for engine core processes to start. ", "E2212", "Timed out"),
    (
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n",
        "E2215",
        "exchange data: unhandled system error (run with NCCL_DEBUG=INFO for details). Run",
    ),
    (
        (
            "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
            "NCCLUtils.cpp:94, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n"
            "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid argument'\n"
        ),
        "E2215",
        "exchange data: Cuda failure 'invalid argument'. Run",
    ),
    (
        "DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, internal error",
        "E2215",
        "exchange data: internal error. Run",
    ),
    ("Last error:\nCuda failure 2 'out of memory'\n", "E2209", "'out of memory'"),
    ("something else went wrong in /opt/venv/lib/vllm/worker.py", "E2200", "went wrong in worker.py"),
    (
        (
            "ValidationError: 1 validation error for CacheConfig\nblock_size\n  Input should be greater than 0 "
            "[type=greater_than, input_value=-1, input_type=int]\n"
            "    For further information visit https://errors.pydantic.dev/2.13/v/greater_than"
        ),
        "E2200",
        "failed to start: block_size: Input should be greater than 0. Check",
    ),
    (
        (
            "ValidationError: 1 validation error for VllmConfig\n  Value error, max_num_batched_tokens (8) must be "
            "at least as large as max_num_seqs [type=value_error, input_value=ArgsKwargs((), {}), input_type=A]\n"
            "    For further information visit https://errors.pydantic.dev/2.13/v/value_error"
        ),
        "E2200",
        "failed to start: max_num_batched_tokens (8) must be at least as large as max_num_seqs. Check",
    ),
    ("KeyError: 'layers.0.weight'", "E2200", "failed to start: KeyError: 'layers.0.weight'. Check"),
    ("see https://docs.vllm.ai/en/latest/usage/", "E2200", "https://docs.vllm.ai/en/latest/usage/. Check"),
    ("", "E2200", "does not say why"),
]


@pytest.mark.parametrize(("text", "code", "told"), TEXTS)
def test_a_text_has_a_code(text, code, told):
    error = coded([text])
    assert error.code == code
    assert told in str(error)
    assert "/opt" not in str(error)
    assert "/srv" not in str(error)


# Whole texts of vLLM 0.26, transformers and PyTorch, and all that is told of them: neither a sentence without its
# beginning, nor half a word at the end.
WHOLE = [
    (
        (
            "The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this "
            "architecture. This could be because of an issue with the checkpoint, or because your version of "
            "Transformers is out of date."
        ),
        (
            "The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this "
            "architecture"
        ),
    ),
    (
        (
            "/srv/cache/engine does not appear to have a file named preprocessor_config.json. Checkout "
            "'https://huggingface.co//srv/cache/engine/tree/main' for available files."
        ),
        "engine does not appear to have a file named preprocessor_config.json",
    ),
    (
        (
            "Quantization method specified in the model config (awq) does not match the quantization method "
            "specified in the `quantization` argument (gptq)."
        ),
        (
            "Quantization method specified in the model config (awq) does not match the quantization method "
            "specified in the `quantization` argument (gptq)"
        ),
    ),
    (
        "Total number of attention heads (7) must be divisible by tensor parallel size (2).",
        "Total number of attention heads (7) must be divisible by tensor parallel size (2)",
    ),
    (
        (
            "User-specified max_model_len (4096) is greater than the derived max_model_len "
            "(max_position_embeddings=256 or model_max_length=None in model's config.json). To allow overriding this "
            "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1."
        ),
        (
            "User-specified max_model_len (4096) is greater than the derived max_model_len "
            "(max_position_embeddings=256 or model_max_length=None in model's config.json)"
        ),
    ),
    (
        (
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current "
            "capability: 75."
        ),
        (
            "The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current "
            "capability: 75"
        ),
    ),
    (
        (
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA RTX 6000 Ada "
            "Generation GPU has compute capability 7.5. You can use float16 instead by explicitly setting the `dtype` "
            "flag in CLI, for example: --dtype=half."
        ),
        (
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your NVIDIA RTX 6000 Ada "
            "Generation GPU has compute capability 7.5"
        ),
    ),
    (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "79.11 GiB of which 1.03 GiB is free. Including non-PyTorch memory, this process has 78.07 GiB memory in "
            "use. Of the allocated memory 77.00 GiB is allocated by PyTorch"
        ),
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.03 GiB "
            "is free"
        ),
    ),
    (
        (
            "To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which "
            "is larger than the available KV cache memory (3.21 GiB). Based on the available memory, the estimated "
            "maximum model length is 26288. Try increasing `gpu_memory_utilization` (which also controls CPU memory on "
            "the CPU backend) or decreasing `max_model_len` when initializing the engine. See "
            "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
        ),
        (
            "To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which "
            "is larger than the available KV cache memory (3.21 GiB). Based on the available memory, the estimated "
            "maximum model length is 26288"
        ),
    ),
    (
        (
            "Free memory on device cuda:0 (11.20/139.80 GiB) on startup is less than desired GPU memory utilization "
            "(0.92, 128.62 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
        (
            "Free memory on device cuda:0 (11.20/139.80 GiB) on startup is less than desired GPU memory utilization "
            "(0.92, 128.62 GiB)"
        ),
    ),
    (
        (
            "Timed out waiting for engine core processes to start. This is often caused by slow weight loading for "
            "large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S)."
        ),
        "Timed out waiting for engine core processes to start",
    ),
    ("x" * 500, "x" * 400 + "..."),
]


@pytest.mark.parametrize(("text", "told"), WHOLE)
def test_what_is_told_of_a_text_is_whole(text, told):
    assert coded([text]).details["reason"] == told


# What NCCL 2.28.9 says where /dev/shm is full, as a worker's log has it.
OF_A_WORKER = """\
import logging.config, os
from pathlib import Path
import json

logging.config.dictConfig(json.loads(Path(os.environ["VLLM_LOGGING_CONFIG_PATH"]).read_text()))
try:
    raise RuntimeError(
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, unhandled system error (run"
        " with NCCL_DEBUG=INFO for details), NCCL version 2.28.9\\nncclSystemError: System call (e.g. socket,"
        " malloc) or external library call failed or device error. \\nLast error:\\nError while creating shared"
        " memory segment /dev/shm/nccl-bWHyCi (size 9637888), error: No space left on device (28)"
    )
except RuntimeError:
    logging.getLogger("vllm.v1.executor.multiproc_executor").exception("WorkerProc failed to start.")
"""


def test_what_a_worker_could_not_do_is_told_from_its_own_log(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with vllm_environment() as failures:
        subprocess.run([sys.executable, "-c", OF_A_WORKER], env=os.environ, check=True, timeout=60)
        error = coded([failures.read_text(), "Engine core initialization failed. Failed core proc(s): {}"])
    assert error.code == "E2215"
    assert str(error).startswith(
        "E2215 VllmGpusNotConnected: The GPUs cannot exchange data: Error while creating shared memory segment"
        " nccl-bWHyCi (size 9637888), error: No space left on device (28). Run the container with more shared"
        " memory (--shm-size=1g)"
    )


LOG_OF_A_WORKER = """\
ERROR vllm Worker_TP0: WorkerProc failed to start.
Traceback (most recent call last):
  File "/opt/vllm/v1/worker.py", line 12, in load
    raise ValueError("x")
ValueError: There is no module or parameter named 'lm_head.bias' in LlamaForCausalLM.
ERROR vllm EngineCore: EngineCore failed to start.
Traceback (most recent call last):
  File "/opt/vllm/v1/core.py", line 7, in run
Exception: WorkerProc initialization failed due to an exception in a background process.
"""


def test_what_a_worker_raised_is_told_and_not_that_it_ended():
    follows = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    for log in (LOG_OF_A_WORKER, "\n".join(reversed(LOG_OF_A_WORKER.splitlines()))):
        assert str(coded([log, follows])).startswith(
            "E2200 VllmUnknownError: vLLM failed to start: ValueError: There is no module or parameter named"
            " 'lm_head.bias' in LlamaForCausalLM. Check"
        )
    assert "background process" in str(coded([LOG_OF_A_WORKER.splitlines()[-1], follows]))


def test_the_cause_comes_before_what_follows_from_it():
    follows = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    assert coded(["Cannot find any model weights with x", follows]).code == "E2204"
    assert coded(["", follows]).code == "E2200"
    assert coded(["EngineArgs.__init__() got an unexpected keyword argument 'x'"]).code == "E2202"


def test_a_library_that_is_missing_is_named():
    error = not_loaded(OSError("libcuda.so.1: cannot open shared object file"))
    assert (error.code, "libcuda.so.1" in str(error)) == ("E2201", True)
