"""Triton, the engine bridge and the engines' environments, as `make setup` and the images have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.errors import PartNotInstalled
from shared.layout import WITHOUT_ENVIRONMENT, Layout

from .check import Check, Finding, error, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator


def _look() -> Iterator[Finding]:
    layout = Layout.current()
    engines = layout.available_engines()
    alone = set(engines) <= WITHOUT_ENVIRONMENT  # a builder image has others, and no Triton
    try:
        _ = layout.tritonserver, layout.triton_libraries, layout.backend_directory
        yield ok(f"Triton and the engine bridge are in {layout.home}")
    except PartNotInstalled as missing:
        part, place = missing.details["part"], missing.details["place"]
        lacks = f'The part "{part}" is missing at {place}: nothing can be served here.'
        yield (error if alone else warning)(lacks, "Run `make setup`, or use a runner image.")
    if alone:
        here = ", ".join(engines)
        yield warning(f"The only engine here is {here}.", "Run `make setup`, or use the engine's image.")
    else:
        yield ok(f"Engines: {', '.join(engines)}")


CHECK = Check("parts", "Triton, the engine bridge and the engines", _look)
