"""Mends vLLM's stand-in for a kernel of speculative decoding on CPUs: imported at the start of each process.

It writes to a copy of what it is given, unless that has 64 bits (vLLM 0.32, vllm/utils/cpu_triton_utils.py), so
that requests of different sampling in one step end the engine. The kernel itself, for GPUs, has no such fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.vllm.after_import import after_import

if TYPE_CHECKING:
    from types import ModuleType


def _expand(
    expanded: Any, values: Any, ends: Any, replace_from: float, replace_to: float, _most_tokens: int = 0
) -> None:
    """Repeat the value of each request for each of its tokens, which end at `ends`."""
    start = 0
    for value, end in zip(values.tolist(), ends.tolist(), strict=True):
        expanded[start:end] = replace_to if value == replace_from else value
        start = end


def _change(module: ModuleType) -> None:
    assert hasattr(module, "_expand_kernel_impl")
    module._expand_kernel_impl = _expand  # type: ignore[attr-defined]  # a name of vLLM


after_import("vllm.utils.cpu_triton_utils", _change)
