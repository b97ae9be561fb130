"""Paths of a config as paths in the work directory; in cog-trt-llm that was /src, with models/ in it."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.commands import MODEL_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable

_OLD_WORK_DIR = "/src"
RESERVED = (MODEL_DIR, "models", "tokenizer")
"""Where the build keeps its own files."""


def in_work_dir(path: str, model: str) -> str | None:
    """`path` as a relative one, None if it leads outside the work directory.

    The path of the hub checkpoint `model`, `/src/models/<model>`, becomes `MODEL_DIR`.
    """
    whole = posixpath.normpath(posixpath.join(_OLD_WORK_DIR, path))
    if "\0" in path or (whole != _OLD_WORK_DIR and not whole.startswith(f"{_OLD_WORK_DIR}/")):
        return None
    relative = PurePosixPath(posixpath.relpath(whole, _OLD_WORK_DIR))
    downloaded = PurePosixPath("models", model)
    if relative.is_relative_to(downloaded):
        relative = MODEL_DIR / relative.relative_to(downloaded)
    return str(relative)


def clash(path: str, others: Iterable[str]) -> str | None:
    """The one of `others` that `path` is, is in, or holds."""
    mine = PurePosixPath(path)
    for other in others:
        if mine.is_relative_to(other) or PurePosixPath(other).is_relative_to(mine):
            return other
    return None
