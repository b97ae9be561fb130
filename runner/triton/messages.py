"""Triton's protobuf messages, without the clients that tritonclient imports with them.

Those need numpy: of everything a runner imports at its start it would take longest, and none of it is used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import tritonclient

_PACKAGE = "tritonclient.grpc"


def messages(name: str) -> Any:
    """The module `tritonclient.grpc.<name>`: the package's own `__init__` is not run for it."""
    if _PACKAGE in sys.modules:
        return import_module(f"{_PACKAGE}.{name}")
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(Path(folder) / "grpc") for folder in tritonclient.__path__]
    sys.modules[_PACKAGE] = package
    try:
        return import_module(f"{_PACKAGE}.{name}")
    finally:
        del sys.modules[_PACKAGE]  # for those who want its clients
