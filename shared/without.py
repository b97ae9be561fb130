"""Imports that omit a package which they would load, but can do without."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without(package: str) -> Iterator[None]:
    """Make what is imported meanwhile behave as if `package` were missing, unless it is imported already."""
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment] # importing it fails from now on
    try:
        yield
    finally:
        del sys.modules[package]
