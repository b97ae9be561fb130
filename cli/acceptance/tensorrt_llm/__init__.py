"""TensorRT-LLM: built, loaded and served. The assumptions come from its sources, not from runs on a GPU."""

from __future__ import annotations

from cli.acceptance import other_image

from . import building, environment, generation, lengths, loading, ranks, tools

CHECKS = (
    *environment.CHECKS,
    *tools.CHECKS,
    *building.CHECKS,
    *generation.CHECKS,
    *lengths.CHECKS,
    *loading.CHECKS,
    *ranks.CHECKS,
    *other_image.CHECKS,
)
