"""Has PyTorch say that this CPU has no AMX, in the environment of the newest vLLM: imported at its start."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MODULE = "torch.cpu"


class _WithoutAMX:
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
            module._is_amx_tile_supported = lambda: False  # type: ignore[attr-defined]  # a name of PyTorch

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this module alone
        return spec


sys.meta_path.insert(0, _WithoutAMX())
