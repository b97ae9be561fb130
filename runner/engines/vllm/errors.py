"""From what vLLM says about a failure to one of our errors; texts of vLLM 0.26 to 0.33."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING

from shared.errors import (
    VllmArgumentInvalid,
    VllmCacheTooSmall,
    VllmContextTooLong,
    VllmGpuMemoryInUse,
    VllmGpusNotConnected,
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
    from collections.abc import Callable, Iterable

    from shared.errors import CogTritonError

_MAX_TOLD = 400
_NCCL_ASKED = re.compile(r"NCCL error(?: in: \S+,|:) |Last error: ")
_PATH = re.compile(r"(?<![\w.])(?<!:/)/(?:[\w.+-]+/)+([\w.+-]*)")  # not one within a URL
# The last line of an exception in a log: those that led to others come first.
_RAISED = re.compile(
    r"^(?:\w+\.)*(\w*(?:Error|Exception): (?!.*(?:initialization failed|died unexpectedly)).+)", re.MULTILINE
)
# What pydantic says of one: the field, unless it is the whole object, and on the next line what is wrong.
_INVALID = re.compile(
    r"validation errors? for \w+\n(?:(\S.*)\n)?  (?:Value error, |Assertion failed, )?([^\0]+?)(?: \[type=|$)"
)


# The first one found decides: causes come before their consequences. What is matched is what the user reads;
# what is optional in it may have other words in other releases.
_TEXTS: tuple[tuple[Callable[[str], CogTritonError], *tuple[str, ...]], ...] = (
    (
        lambda told: VllmModelNotSupported(reason=told),
        r"Model architectures .{0,200}? are not supported",
        (
            r"(?:The checkpoint[^\n]{0,60}? )?model type `?[^`\s]+`?"
            r" but Transformers does not recognize(?: this architecture)?"
        ),
        r"Unknown quantization method[^\n.]{0,60}",
    ),
    (
        lambda told: VllmModelIncomplete(reason=told),
        r"Invalid repository ID or local directory specified",
        r"Cannot find any model weights",
        r"\S* ?does not appear to have a file named(?: [\w.-]*\w)?",
    ),
    (
        lambda told: VllmQuantizationInvalid(reason=told),
        (
            r"(?:Quantization method specified in the model config \([^)\n]*\) )?"
            r"does not match the quantization method(?:[^\n]{0,60}? argument \([^)\n]*\))?"
        ),
    ),
    (
        lambda told: VllmGpuTooOld(reason=told),
        (
            r"(?:The quantization method \S+ is )?not supported for the current GPU\."
            r" Minimum capability[^\n]{0,80}"
        ),
        (
            r"Bfloat16 is only supported on GPUs with compute capability(?: of at least [\d.]*\d)?"
            r"(?:\. Your [^\n]{1,60}? has compute capability [\d.]*\d)?"
        ),
    ),
    (
        lambda told: VllmContextTooLong(reason=told),
        (
            r"(?:User-specified max_model_len \(\d+\) is )?"
            r"greater than the derived max_model_len[^\n]{0,160}?config\.json\)"
        ),
    ),
    (
        lambda told: VllmParallelismInvalid(reason=told),
        (
            r"(?:Total number of attention heads \(\d+\) )?"
            r"must be divisible by tensor parallel size(?: \(\d+\))?"
        ),
        r"World size \(\d+\) is larger than the number of available GPUs",
    ),
    (
        lambda told: VllmGpuMemoryInUse(reason=told + _holders()),
        r"Free memory on device[^\n]{0,160}?desired GPU memory utilization(?: \([^)\n]*\))?",
    ),
    (
        lambda told: VllmCacheTooSmall(reason=told),
        (
            r"To serve at least one request with the models?'?s? max seq len"
            r"(?:[^\n]{0,200}? available KV cache memory \([^)\n]*\)"
            r"(?:\. Based on[^\n]{0,60}? length is \d+)?)?"
        ),
        r"No available memory for the cache blocks",
    ),
    (
        lambda told: VllmOutOfMemory(reason=told),
        (
            r"CUDA out of memory(?:\. Tried to allocate [\d.]+ \w+)?"
            r"(?:\. GPU \d+ has a total capacity of [^\n]{1,60}? is free)?"
        ),
        r"Cuda failure (\d+ )?'out of memory'",
        r"OutOfMemoryError[^\n]{0,120}",
    ),
    # Of vLLM's own wrapper, and of torch.distributed, which says where in its sources, and what came last.
    (
        lambda told: VllmGpusNotConnected(reason=_NCCL_ASKED.split(told)[-1]),
        r"NCCL error(?: in: \S+,|:) [^\n]{1,200}(?:\n[^\n]{0,200}\nLast error:\s*[^\n]{1,200})?",
    ),
    (
        lambda told: VllmArgumentInvalid(reason=told),
        r"got an unexpected keyword argument '[^']+'",
    ),
    (
        lambda told: VllmStartTimedOut(reason=told),
        r"Timed out waiting for engine[^\n.]{0,80}",
    ),
)


def coded(texts: Iterable[str]) -> CogTritonError:
    """The error that the texts describe, most informative text first; it contains no path of this machine."""
    known = [text for text in texts if text]
    for make, *patterns in _TEXTS:
        for pattern, text in product(patterns, known):
            if found := re.search(pattern, text, re.DOTALL):
                return make(plain(found.group()))
    return VllmUnknownError(reason=plain(_cause(known)) or "it does not say why")


def not_loaded(problem: Exception) -> CogTritonError:
    """The library cannot be imported."""
    return VllmNotLoaded(reason=plain(f"{type(problem).__name__}: {problem}"))


def _cause(texts: list[str]) -> str:
    """What the first of them says that is no consequence, or else its last line."""
    for text in texts:
        if found := _INVALID.search(text):
            return ": ".join(filter(None, found.groups()))
        if found := _RAISED.search(text):
            return found[1]
    lines = [line for text in texts[:1] for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def plain(text: str) -> str:
    """What vLLM says, on one line, without paths of this machine."""
    told = _PATH.sub(r"\1", " ".join(text.split())).rstrip(".")
    return told if len(told) <= _MAX_TOLD else f"{told[:_MAX_TOLD]}..."


def _holders() -> str:
    """Which processes hold memory of the GPUs, if the driver reports them."""
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
