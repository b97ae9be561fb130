"""What the tools have in common: their log, and failing on request."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from . import VERSION

FAIL = "fail"
"""A file at the root of the environment: the tool that must fail, and one of `FAILURES`."""


def log(level: str, text: str) -> None:
    print(f"[{time.strftime('%m/%d/%Y-%H:%M:%S')}] [TRT-LLM] [{level}] {text}", flush=True)


def start(name: str) -> None:
    with TemporaryDirectory(dir=os.environ["HOME"]):
        """Like flashinfer, which keeps what it compiles there."""
    print(f"[TensorRT-LLM] TensorRT-LLM version: {VERSION}", flush=True)
    wanted = Path(sys.prefix, FAIL)
    if wanted.is_file():
        tool, failure = wanted.read_text().split()
        if tool == name:
            FAILURES[failure]()


def _fails(text: str, status: int = 1):
    def fail() -> None:
        print(text, file=sys.stderr, flush=True)
        sys.exit(status)

    return fail


def _killed() -> None:
    log("I", "Total time of building Unnamed Network 0: 00:03:14")
    os.kill(os.getpid(), signal.SIGKILL)


def _hangs() -> None:
    """Like mpirun and its workers: one of them in a session of its own."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    subprocess.Popen(sleep)
    subprocess.Popen(sleep, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    log("I", "Build TensorRT engine Unnamed Network 0")
    time.sleep(600)


_TRACEBACK = 'Traceback (most recent call last):\n  File "/opt/app/tensorrt_llm/x.py", line 7, in main\n'
FAILURES = {
    "slow": lambda: atexit.register(time.sleep, 1),
    "killed": _killed,
    "hangs": _hangs,
    "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "gpu_memory": _fails(
        "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n): out of memory (/src/tllm.h:118)"
    ),
    "build_memory": _fails(
        "[TRT] [E] [resizingAllocator.cpp::allocate::74] Error Code 1: Cuda Runtime (In allocate at /src/x.cpp)\n"
        "[TRT] [E] Requested amount of GPU memory (8589934592 bytes) could not be allocated.\n"
        f"{_TRACEBACK}RuntimeError: Engine building failed, please check the error log."
    ),
    "no_gpu": _fails(f"{_TRACEBACK}OSError: GPU is required for inference."),
    "no_driver": _fails(
        f"{_TRACEBACK}ImportError: libcuda.so.1: cannot open shared object file: No such file or directory"
    ),
    "no_mpi": _fails(
        f"{_TRACEBACK}ImportError: libmpi.so.40: cannot open shared object file: No such file or directory"
    ),
    "symbol": _fails(
        f"{_TRACEBACK}ImportError: /opt/app/th.so: undefined symbol: _ZN3c1017RegisterOperators"
    ),
    "sm": _fails(f"{_TRACEBACK}NotImplementedError: gemm_swiglu_plugin=fp8 is not supported on SM 100."),
    "disk_full": _fails(f"{_TRACEBACK}OSError: [Errno 28] No space left on device: '/opt/app/rank0.engine'"),
    "version": _fails(
        "[TensorRT-LLM][ERROR] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization "
        "assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current "
        "Version: 238, Serialized Engine Version: 236)"
    ),
    "worker": _fails(
        f"{_TRACEBACK}KeyError: 'model.layers.0.self_attn.rotary_emb'\n"
        f"{_TRACEBACK}RuntimeError: Checkpoint conversion failed, please check error log."
    ),
}
