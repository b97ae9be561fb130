"""The memory of the machine, or of the container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from shared.sizes import readable

from .check import Check, Finding, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_LITTLE = 4_000_000_000  # bytes


def _look() -> Iterator[Finding]:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    where = "This machine has"
    limit = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.is_file() else "max"
    if limit.isdecimal() and int(limit) < total:
        total, where = int(limit), "This container may use"
    if total < _LITTLE:
        yield warning(
            f"{where} {readable(total)} of memory: enough for small models only.",
            "A build for TensorRT-LLM takes about twice the size of the model: `cog-triton check` estimates"
            " it.",
        )
    else:
        yield ok(f"{where} {readable(total)} of memory")


CHECK = Check("memory", "Memory", _look)
