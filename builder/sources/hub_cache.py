"""Which files belong to a model in the hub library's cache."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

_SHARED = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{62}")
_MARK, _LAYOUT = ".huggingface-shared-blobs", b"1\n"


def belongs(path: Path, model: Path) -> bool:
    """Whether what is at `path`, behind all links, is in the folder `model`, whose own links are resolved.

    Or it is a file that the models of a cache share: those that came over Xet are in a store beside the
    models' folders, and the library leaves links to them in each model's blobs.
    """
    end = Path(os.path.realpath(path))  # Path.resolve raises for a link to itself
    if end.is_relative_to(model):
        return True
    store = model.parent / "blobs"
    try:
        return (
            model.name.startswith("models--")
            and end.is_relative_to(store)
            and _SHARED.fullmatch(end.relative_to(store).as_posix()) is not None
            and stat.S_ISREG(end.lstat().st_mode)  # no link to itself: the next line would not end
            and _last_link(path).parent.resolve() == model / "blobs"
            and _is_store(store)
        )
    except OSError:
        return False


def _last_link(path: Path) -> Path:
    """The last of the links that lead from `path` to a file."""
    last = path
    while path.is_symlink():
        last, path = path, path.parent / path.readlink()
    return last


def _is_store(folder: Path) -> bool:
    """Whether the library says that `folder` is its store, in the layout that is known here."""
    mark = folder / _MARK
    status = mark.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_size == len(_LAYOUT) and mark.read_bytes() == _LAYOUT
