"""TensorRT-LLM's own error messages, as coded errors.

Its texts contain backtraces and paths of the machine it was built on; neither reaches anybody.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from shared.errors import (
    EngineOfAnotherGpu,
    EngineOfAnotherVersion,
    ExecutorQueueFull,
    GpuMemoryTooSmall,
    InvalidArgument,
    PromptTooLong,
    RanksMismatch,
    RequestInvalid,
    TensorRTLLMError,
    TensorRTLLMNotLoaded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.errors import CogTritonError

# ` (/build/file.cpp:12)` or ` (file.h:12)`: everything from there on is for TensorRT-LLM's developers.
_PLACE = re.compile(r"\s*\([^()\s]*:\d+\)")
_PREFIXES = re.compile(
    r"^(?:\s*(?:\[TensorRT-LLM\]|\[ERROR\]|\[TRT\]|Assertion failed:|RuntimeError:|"
    r"Encountered an error (?:when fetching new request|in forward(?:As|S)ync function):))+\s*"
)
_PATH = re.compile(r"(?<![\w./])/(?:[^\s/:()'\"]+/)+([^\s/:()'\"]*)")

# Each pattern is searched for in the text without places and paths; the first one found decides.
_TRANSLATIONS: tuple[tuple[str, Callable[[re.Match[str], str], CogTritonError]], ...] = (
    (
        r"Prompt length \((\d+)\) exceeds maximum input length \((\d+)\)",
        lambda found, _: PromptTooLong(prompt_tokens=found[1], max_prompt_tokens=found[2]),
    ),
    (
        r"EndId \((-?\d+)\) is not within acceptable range \[-1, (\d+)\)",
        lambda found, _: InvalidArgument(
            argument="end_id", value=found[1], reason=f"this model's tokens are 0 to {int(found[2]) - 1}"
        ),
    ),
    (
        (
            r"Incorrect sampling config|(?:beamWidth|topK|topP\w*|temperature|minTokens|repetitionpenalty|"
            r"lengthPenalty|earlyStopping|noRepeatNgramSize|numReturnSequences|minP)(?:\.value\(\))? [<>]=? "
        ),
        lambda _, text: RequestInvalid(reason=f"TensorRT-LLM refuses a sampling parameter: {text}"),
    ),
    (
        r"Maximum queue size of (\d+) has been reached",
        lambda found, _: ExecutorQueueFull(limit=found[1]),
    ),
    (
        r"expecting library version (\S+) got ([^\s,]+)",
        lambda found, _: EngineOfAnotherVersion(
            reason=f"it needs TensorRT {found[2]}, and the one here is {found[1]}"
        ),
    ),
    (
        r"Current Version: (\d+), Serialized Engine Version: (\d+)",
        lambda found, _: EngineOfAnotherVersion(
            reason=f"its format is {found[2]}, and the TensorRT here reads {found[1]}"
        ),
    ),
    (
        r"(?:Magic|Version) tag does not match",
        lambda *_: EngineOfAnotherVersion(reason="its format is not that of the TensorRT here"),
    ),
    (r"\[json\.exception\.", lambda *_: EngineOfAnotherVersion(reason="its config.json cannot be read")),
    (
        r"expecting compute ([\d.]+) got compute (\d+\.\d+)",
        lambda found, _: EngineOfAnotherGpu(built=found[2], present=found[1]),
    ),
    (
        r"MPI worldSize is expected|MPI size \d+|parallelism mismatch",
        lambda _, text: RanksMismatch(reason=text),
    ),
    (
        r"out of memory|could not be allocated|OutOfMemory|Attention window too large",
        lambda _, text: GpuMemoryTooSmall(reason=text),
    ),
)

_COMPLAINT = re.compile(r"\[(?:ERROR|E)\]")
_BROKEN_GPU = re.compile(r"CUDA (?:runtime )?error|cudaError|illegal memory access|NCCL error", re.IGNORECASE)


def plain_text(text: str) -> str:
    """What an error says, without prefixes, the place in the source, paths, and the backtrace."""
    first = text.strip().partition("\n")[0]
    return _PATH.sub(r"\1", _PLACE.split(_PREFIXES.sub("", first))[0]).strip().rstrip(".")


def coded(text: str) -> CogTritonError:
    """The coded error for the text of one of TensorRT-LLM's errors; TensorRTLLMError for an unknown one."""
    plain = plain_text(text)
    for pattern, translate in _TRANSLATIONS:
        if found := re.search(pattern, plain):
            return translate(found, plain)
    return TensorRTLLMError(reason=plain or "it gave no reason")


def cause_of(text: str, log: str) -> CogTritonError:
    """The coded error for the text of a failed load, given what was logged before.

    TensorRT reports the cause to the logger: the exception says only "Failed to deserialize cuda engine.".
    """
    error = coded(text)
    if type(error) is not TensorRTLLMError:
        return error
    complaints = [coded(line) for line in log.splitlines() if _COMPLAINT.search(line)]
    known = [complaint for complaint in complaints if type(complaint) is not TensorRTLLMError]
    return next(iter(known), error)


def not_loaded(error: Exception) -> CogTritonError:
    """TensorRTLLMNotLoaded for what importing TensorRT-LLM raised."""
    return TensorRTLLMNotLoaded(reason=plain_text(str(error)) or type(error).__name__)


def leaves_gpu_broken(text: str) -> bool:
    """Whether nothing more can be computed in this process: after a CUDA error, every call fails."""
    return _BROKEN_GPU.search(text) is not None and "out of memory" not in text
