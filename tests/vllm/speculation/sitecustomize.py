"""Mends vLLM's stand-in for a kernel of speculative decoding on CPUs: imported at the start of each process.

It writes to a copy of what it is given, unless that has 64 bits (vLLM 0.26, vllm/utils/cpu_triton_utils.py), so
that requests of different sampling in one step end the engine. The kernel itself, for GPUs, has no such fault.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MODULE = "vllm.utils.cpu_triton_utils"


class _Mended:
    """Finds the module, and changes it after its execution."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            module.expand_kernel = _Kernel()  # type: ignore[attr-defined]  # a name of vLLM

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this module alone
        return spec


class _Kernel:
    """Repeats the value of each request for each of its tokens; `kernel[grid](...)` runs it, as Triton's do."""

    def __getitem__(self, _grid: object) -> _Kernel:
        return self

    def __call__(
        self, expanded: Any, values: Any, ends: Any, replace_from: float, replace_to: float, **_: object
    ) -> None:
        start = 0
        for value, end in zip(values.tolist(), ends.tolist(), strict=True):
            expanded[start:end] = replace_to if value == replace_from else value
            start = end


sys.meta_path.insert(0, _Mended())
