"""`cog-triton acceptance`: is the real engine what we assumed? A package per engine, a module per topic.

Each check names one assumption and the source that it comes from, so that a failure says what to change. To
add one, write a function from the engine's bench to `Outcome`, and add a `Check` to the CHECKS of its topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import tensorrt_llm, vllm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .check import Check

__all__ = ["CHECKS"]

CHECKS: Mapping[str, tuple[Check, ...]] = {"tensorrt_llm": tensorrt_llm.CHECKS, "vllm": vllm.CHECKS}
"""By kind of engine."""
