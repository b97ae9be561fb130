"""vLLM: its core is driven below its own front end, so what it promises there is not a promise to us."""

from __future__ import annotations

from cli.acceptance import other_image

from . import environment, loading, processes, serving

CHECKS = (
    *environment.CHECKS,
    *loading.CHECKS,
    *serving.CHECKS,
    *processes.CHECKS,
    *other_image.CHECKS,
)
