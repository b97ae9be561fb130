"""Paths of a config as paths in the work directory; in cog-trt-llm that was /src, with models/ in it."""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.commands import MODEL_DIR

if TYPE_CHECKING:
    from collections.abc import Iterable

_OLD_WORK_DIR, _OLD_MODELS = "/src", "/src/models"
RESERVED = (MODEL_DIR, "models", "tokenizer")
"""Where the build keeps its own files."""


def in_work_dir(path: str, model: str) -> str | None:
    """`path` as a relative one, None if it leads outside the work directory.

    The path of the checkpoint `model`, `/src/models/<model>`, becomes `MODEL_DIR`; the absolute path of a
    folder, too.
    """
    if "\0" in path:
        return None
    whole = PurePosixPath(posixpath.normpath(posixpath.join(_OLD_WORK_DIR, path)))
    for root in _roots(model):
        if whole.is_relative_to(root):
            return str(MODEL_DIR / whole.relative_to(root))
    return str(whole.relative_to(_OLD_WORK_DIR)) if whole.is_relative_to(_OLD_WORK_DIR) else None


def _roots(model: str) -> list[PurePosixPath]:
    """The names that a config may have for the folder of `model`."""
    names = [f"{_OLD_MODELS}/{model}", *([model] if model.startswith("/") else [])]
    roots = [PurePosixPath(posixpath.normpath(name)) for name in names]
    return [root for root in roots if not PurePosixPath(_OLD_MODELS).is_relative_to(root)]


def clash(path: str, others: Iterable[str]) -> str | None:
    """The one of `others` that `path` is, is in, or holds."""
    mine = PurePosixPath(path)
    for other in others:
        if mine.is_relative_to(other) or PurePosixPath(other).is_relative_to(mine):
            return other
    return None
