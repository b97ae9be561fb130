"""Turns what a tool of TensorRT-LLM wrote before it failed into a coded error with a remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from builder.convert import failure, without_folders
from builder.tracebacks import is_exception, without_sources
from shared.errors import (
    CheckpointInvalid,
    CogTritonError,
    EngineEnvironmentBroken,
    EngineVersionMismatch,
    GpuMemoryExhausted,
    GpuNotFound,
    NotEnoughSpace,
    NotSupportedOnGpu,
    ToolArgumentsRefused,
    UnsupportedArchitecture,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_REASON = 300
# What TensorRT-LLM's wrappers put around the message itself.
_PREFIX = re.compile(
    r"^(\[rank\d+\]: )?(\[(\d\S*|TRT-LLM|TRT|[A-Z])\] )*(\[TensorRT-LLM\]\[ERROR\] )?(Assertion failed: )?"
)
_BACKTRACE = re.compile(r" \(/?\S*:\d+\)$")

_Make = Callable[[str, re.Match[str], str], CogTritonError]  # of the step, what was found, and its line


# The first rule that matches any line applies: consequences are listed after their causes.
_RULES: tuple[tuple[tuple[str, ...], _Make], ...] = (
    (
        (r"Unsupported model (?:architecture|type): (\S+)",),
        lambda _step, found, _line: UnsupportedArchitecture(
            architecture=found[1], supported="those in TensorRT-LLM's examples/models"
        ),
    ),
    (
        (r"Cannot export tensorrt_llm checkpoint for model \S+: (\S+?)\. ",),
        lambda _step, found, _line: UnsupportedArchitecture(
            architecture=found[1], supported="those that docs/tensorrt_llm.md lists for quantize.py"
        ),
    ),
    (
        (r"(\S+)=(\S+) is not supported on SM (\d+)\.",),
        lambda _step, found, _line: NotSupportedOnGpu(argument=found[1], value=found[2], sm=found[3]),
    ),
    (
        (r"No space left on device",),
        lambda step, _found, _line: NotEnoughSpace(reason=f'it was full in the step "{step}"'),
    ),
    (
        (
            r"CUDA runtime error in .*: out of memory",
            r"CUDA (error: )?out of memory",
            r"Requested amount of GPU memory \(\d+ bytes\) could not be allocated",
            r"OutOfMemory \(no further information\)",
        ),
        lambda step, _found, line: GpuMemoryExhausted(step=step, reason=line),
    ),
    (
        (
            r"GPU is required for inference\.",
            r"No CUDA GPUs are available",
            r"no CUDA-capable device is detected",
            r"Found no NVIDIA driver on your system",
            r"libcuda\.so\.1: cannot open shared object file",
        ),
        lambda step, _found, line: GpuNotFound(step=step, reason=line),
    ),
    (
        (
            r"lib\S+\.so\S*: cannot open shared object file",
            r"undefined symbol: \S+",
            r"No module named \S+",
        ),
        lambda _step, _found, line: EngineEnvironmentBroken(reason=line),
    ),
    (
        (
            r"not compatible with this version of TensorRT, expecting library version",
            r"Version tag does not match",
            r"\[json\.exception\.(type_error\.302|out_of_range\.403|parse_error\.101)\]",
        ),
        lambda step, _found, line: EngineVersionMismatch(step=step, reason=line),
    ),
    (
        (
            r"error: argument --\S+: ",
            r"error: (unrecognized arguments|the following arguments are required): ",
            r"StreamingLLM is no longer supported",
            r"GemmSwiGLU plugin (requires|currently has limited support)",
            r"multiple_profiles is enabled, while opt_num_tokens is set\.",
            r"Gather context logits is not support with draft len > 0\.",
            r"Unsupported quantization format: \S+",
            r"Quantization supports only one quantization format\.",
            r" divisible by (tp|pp|cp)_size",
            r"One of source checkpoint \(model_dir, nemo_ckpt_path\) must be specified",
            r"No source model path specified!",
        ),
        lambda step, _found, line: ToolArgumentsRefused(step=step, reason=line),
    ),
    (
        (
            r"Expected but not provided tensors: ",
            r"The value updated is not the same shape as the original",
            r"GPTQ with desc_act=True is not implemented!",
            r"Error while deserializing header",
            r"does not appear to have a file named",
            r"is not divisible by",
        ),
        lambda _step, _found, line: CheckpointInvalid(reason=line),
    ),
)
_COMPILED = tuple((re.compile("|".join(patterns)), make) for patterns, make in _RULES)
# These only say that something else went wrong.
_FOLLOWS = re.compile(r"(Engine building|Checkpoint conversion) failed, please check (the )?error log")
_COMPLAINS = re.compile(r"\[E\] |\[ERROR\]")


def coded(step: str, status: int, output: Iterable[str]) -> CogTritonError:
    """The error for a tool of the step `step` that ended with `status`, after `output`."""
    lines = list(without_sources(output))
    for pattern, make in _COMPILED:
        for line in lines:
            if found := pattern.search(line):
                return make(step, found, _plain(line))
    causes = [line for line in lines if not _FOLLOWS.search(line)]
    complaints = [line for line in causes if _COMPLAINS.search(line) or is_exception(line)]
    return failure(step, status, [_plain((complaints or causes)[-1])] if causes else [])


def _plain(line: str) -> str:
    """The message of a line of a log or traceback, without paths."""
    text = without_folders(_BACKTRACE.sub("", _PREFIX.sub("", line.strip()))).rstrip(".!")
    return text if len(text) <= _MAX_REASON else f"{text[:_MAX_REASON]}..."
