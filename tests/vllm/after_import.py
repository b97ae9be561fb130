"""Changes a module of vLLM's environment just after its import, for processes that the tests do not start themselves."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _Finder:
    """Finds one module, and changes it after its execution."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._change = change

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # this module alone
        return spec


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Call `change` with that module, once it is imported. To be called before."""
    sys.meta_path.insert(0, _Finder(name, change))
