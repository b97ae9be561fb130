"""The environment of vLLM's processes: quiet, offline, and able to report why one of them failed.

vLLM reads it at import, and its child processes inherit it. What the operator has set stays.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shared.home import SCRATCH
from shared.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULTS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
    # A fork would pass on the bridge's socket, and the bridge would not notice the end of this process.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Both compile at run time with nvcc, which does not work without a C++ compiler: what samples with top_k
    # and top_p (vllm/v1/sample/ops/topk_topp_sampler.py), and matrix products in FP8
    # (vllm/utils/deep_gemm.py).
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
}


_LOGGING = "VLLM_LOGGING_CONFIG_PATH"
_LONGEST = 70  # bytes of a directory for its sockets: 36 are their names, and 107 a path may have


@contextmanager
def vllm_environment() -> Iterator[Path]:
    """Set what is not set yet, while vLLM starts its processes.

    The errors that any of them logs are also in the file that this yields, once there are some.
    """
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    # Triton, the language, compiles what launches a kernel (triton/runtime/build.py); CC comes before gcc.
    if (compiler := Layout.current().home / "compiler/cc").is_file():
        os.environ.setdefault("CC", str(compiler))
    # What is there is removed however these processes end.
    scratch = os.environ.get(SCRATCH)
    if scratch and len(os.fsencode(scratch)) <= _LONGEST:
        os.environ.setdefault("VLLM_RPC_BASE_PATH", scratch)
    with tempfile.TemporaryDirectory(
        prefix="vllm-start-", dir=scratch, ignore_cleanup_errors=True
    ) as directory:
        failures = Path(directory, "failures")
        is_ours = _LOGGING not in os.environ
        if is_ours:
            config = Path(directory, "logging.json")
            config.write_text(json.dumps(_logging(failures)))
            os.environ[_LOGGING] = str(config)
        try:
            yield failures
        finally:
            if is_ours:
                del os.environ[_LOGGING]


def _logging(failures: Path) -> dict[str, object]:
    """For `logging.config.dictConfig`, which vLLM calls in each of its processes."""
    level = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING").upper()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(levelname)s vllm %(processName)s: %(message)s"}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "stream": "ext://sys.stderr",
                "formatter": "line",
            },
            "failures": {
                "class": "logging.FileHandler",
                "filename": str(failures),
                "level": "ERROR",
                "formatter": "line",
            },
        },
        "loggers": {"vllm": {"handlers": ["stderr", "failures"], "level": level, "propagate": False}},
    }
