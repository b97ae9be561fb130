"""Has PyTorch say that this CPU has no AMX, in the environment of vLLM for CPUs: imported at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.vllm.after_import import after_import

if TYPE_CHECKING:
    from types import ModuleType


def _change(module: ModuleType) -> None:
    module._is_amx_tile_supported = lambda: False  # type: ignore[attr-defined]  # a name of PyTorch


after_import("torch.cpu", _change)
