"""The directory in which a runner, or a host that joins one, keeps its sockets and small files while it runs.

Its runner holds a lock on it, which the kernel releases however the runner ends: a directory that nobody has
locked is removed at the next start.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import RunDirectoryUnusable

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "cog-triton-run-"
_MARK = ".run-directory"  # without it, a directory is somebody else's, whatever its name
_ELSEWHERE = ("/dev/shm", "/var/tmp", "/tmp")  # noqa: S108 - the directory itself is made by mkdtemp
_MAX_BYTES = 90  # of its path: that of a Unix socket in it may have 107
_NEEDED_BYTES = 1 << 16
_YOUNG_SECONDS = 10  # one that is being created is not locked yet


@contextmanager
def run_directory() -> Iterator[Path]:
    """A new directory for this process only, removed at the end; those of killed runners are removed now.

    It is where temporary files belong (TMPDIR), or elsewhere if nothing can be written there. Raises
    RunDirectoryUnusable.
    """
    problems = []
    for parent in dict.fromkeys((_temporary(), *_ELSEWHERE)):
        try:
            _sweep(Path(parent))
            directory, lock = _made(parent)
        except OSError as problem:
            problems.append(f"{parent}: {problem.strerror or problem}")
            continue
        try:
            yield directory
        finally:
            _remove(directory)
            os.close(lock)
        return
    raise RunDirectoryUnusable(reason="; ".join(problems))


def _temporary() -> str:
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - only named in a message


def _made(parent: str) -> tuple[Path, int]:
    """A directory in which a file can be written, and its lock. Raises OSError."""
    directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        if len(os.fsencode(directory)) > _MAX_BYTES:
            raise OSError(f"the path is longer than {_MAX_BYTES} bytes")
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / _MARK).touch()
        trial = directory / "trial"
        trial.write_bytes(bytes(_NEEDED_BYTES))
        trial.unlink()
    except BaseException:
        _remove(directory)
        raise
    return directory, lock


def _remove(directory: Path) -> None:
    """All of it, also when a signal that ends this process cuts it short."""
    try:
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed runners of this user left there. Raises OSError when nothing can be there."""
    for directory in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it is gone, or it is not ours
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(lock)
                os.stat(_MARK, dir_fd=lock)
                if found.st_uid != os.getuid() or time.time() - found.st_mtime < _YOUNG_SECONDS:
                    continue
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(lock)
