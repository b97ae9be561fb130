"""From what vLLM says of a failure to one of our errors; texts of vLLM 0.26 to 0.33."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.errors import (
    CogTritonError,
    VllmArgumentInvalid,
    VllmCacheTooSmall,
    VllmContextTooLong,
    VllmGpuMemoryInUse,
    VllmGpuTooOld,
    VllmModelIncomplete,
    VllmModelNotSupported,
    VllmNotLoaded,
    VllmOutOfMemory,
    VllmParallelismInvalid,
    VllmQuantizationInvalid,
    VllmStartTimedOut,
    VllmUnknownError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

# The first that is found decides: what causes comes before what follows from it.
_TEXTS: tuple[tuple[str, type[CogTritonError]], ...] = (
    (r"Model architectures .{0,200}? are not supported", VllmModelNotSupported),
    (r"model type `?[^`\s]+`? but Transformers does not recognize", VllmModelNotSupported),
    (r"Invalid repository ID or local directory specified", VllmModelIncomplete),
    (r"Cannot find any model weights", VllmModelIncomplete),
    (r"does not appear to have a file named", VllmModelIncomplete),
    (r"does not match the quantization method", VllmQuantizationInvalid),
    (r"Unknown quantization method", VllmQuantizationInvalid),
    (r"not supported for the current GPU\. Minimum capability[^\n]{0,80}", VllmGpuTooOld),
    (r"Bfloat16 is only supported on GPUs with compute capability[^\n]{0,80}", VllmGpuTooOld),
    (r"greater than the derived max_model_len[^\n]{0,120}", VllmContextTooLong),
    (r"must be divisible by tensor parallel size[^\n]{0,40}", VllmParallelismInvalid),
    (r"World size \(\d+\) is larger than the number of available GPUs", VllmParallelismInvalid),
    (r"Free memory on device[^\n]{0,160}?desired GPU memory utilization[^\n]{0,80}", VllmGpuMemoryInUse),
    (r"To serve at least one request with the models?'?s? max seq len[^\n]{0,400}", VllmCacheTooSmall),
    (r"No available memory for the cache blocks", VllmCacheTooSmall),
    (r"CUDA out of memory[^\n]{0,120}", VllmOutOfMemory),
    (r"OutOfMemoryError[^\n]{0,120}", VllmOutOfMemory),
    (r"got an unexpected keyword argument '[^']+'", VllmArgumentInvalid),
    (r"Timed out waiting for engine[^\n]{0,80}", VllmStartTimedOut),
)
_PATH = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+([\w.+-]*)")


def coded(texts: Iterable[str], otherwise: type[CogTritonError] = VllmUnknownError) -> CogTritonError:
    """The error that the texts speak of, most telling text first; no path of this machine is in it."""
    known = [text for text in texts if text]
    for pattern, kind in _TEXTS:
        for text in known:
            if found := re.search(pattern, text, re.DOTALL):
                return kind(reason=_told(found.group()) + _holders(kind))
    return otherwise(reason=_told(_last_line(known)) or "it does not say why")


def not_loaded(problem: Exception) -> CogTritonError:
    """The library cannot be imported."""
    return VllmNotLoaded(reason=_told(f"{type(problem).__name__}: {problem}"))


def _last_line(texts: list[str]) -> str:
    lines = [line for text in texts[:1] for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _told(text: str) -> str:
    return _PATH.sub(r"\1", " ".join(text.split())).rstrip(".")[:400]


def _holders(kind: type[CogTritonError]) -> str:
    """Which processes hold memory of the GPUs, where that is the question and the driver tells."""
    if kind is not VllmGpuMemoryInUse:
        return ""
    try:
        import pynvml

        pynvml.nvmlInit()
        held = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            held += [
                f"process {process.pid} holds {(process.usedGpuMemory or 0) >> 20} MiB of GPU {index}"
                for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
            ]
    except Exception:
        return ""
    return "; " + ", ".join(held) if held else ""
