"""A directory for one process.

The process holds a lock on it, which the kernel releases however the process ends: what killed ones left is
removed when the next one makes its own.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARK = ".cog-triton"  # without it, a directory is somebody else's, whatever its name


@contextmanager
def own_directory(prefix: str, parent: Path) -> Iterator[Path]:
    """A new directory in `parent` for this user alone, removed at the end; those of killed processes, with
    the same prefix, are removed now. Raises OSError when it cannot be made.
    """
    _sweep(prefix, parent)
    with ExitStack() as stack:
        made = TemporaryDirectory(prefix=prefix, dir=parent, ignore_cleanup_errors=True)
        stack.callback(_remove, made)
        lock = os.open(made.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, lock)
        with suppress(OSError):  # a file system without locks, where nothing is swept
            fcntl.flock(lock, fcntl.LOCK_EX)
            Path(made.name, _MARK).touch()
        yield Path(made.name)


def _remove(made: TemporaryDirectory[str]) -> None:
    """All of it, also when a signal that ends this process cuts it short."""
    try:
        made.cleanup()
    finally:
        made.cleanup()


def _sweep(prefix: str, parent: Path) -> None:
    """Remove what killed processes of this user left there. Raises OSError when nothing can be there."""
    for directory in parent.glob(f"{prefix}*"):
        with suppress(OSError):  # it is gone, or in use, or it is not ours
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.stat(_MARK, dir_fd=lock)
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
