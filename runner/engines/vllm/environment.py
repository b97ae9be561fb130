"""The environment of vLLM's processes: quiet, offline, and able to say why one of them failed.

vLLM reads it at import, and its child processes inherit it. What the operator has set stays.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_DEFAULTS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",
    # A fork would hand on the bridge's socket, and the bridge would not see this process end.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Both compile at run time with nvcc, which is not in the image.
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_DEEP_GEMM": "0",
}


def prepare_environment(failures: Path) -> None:
    """Set what is not set yet. Errors that any of vLLM's processes logs are also written to `failures`."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "VLLM_LOGGING_CONFIG_PATH" not in os.environ:
        config = failures.with_suffix(".json")
        config.write_text(json.dumps(_logging(failures)))
        os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(config)


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
                "delay": True,
            },
        },
        "loggers": {"vllm": {"handlers": ["stderr", "failures"], "level": level, "propagate": False}},
    }
