"""`cog-triton acceptance`: is the real TensorRT-LLM what we took it for? One module per theme.

The sources were read; nothing here was known from a GPU when it was written. Each check names one assumption
and the source that it comes from, so that a failure says what to change. To add one, write a function from
`Bench` to `Outcome`, and a `Check` in the CHECKS of its theme.
"""

from __future__ import annotations

from . import building, environment, generation, lengths, loading, other_image, ranks, tools
from .check import Check

__all__ = ["CHECKS", "Check"]

CHECKS: tuple[Check, ...] = (
    *environment.CHECKS,
    *tools.CHECKS,
    *building.CHECKS,
    *generation.CHECKS,
    *lengths.CHECKS,
    *loading.CHECKS,
    *ranks.CHECKS,
    *other_image.CHECKS,
)
