"""The directory in which a runner, or a host that joins one, keeps sockets and small files while it runs."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import RunDirectoryUnusable
from shared.own_directory import own_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "cog-triton-run-"
_ELSEWHERE = ("/dev/shm", "/var/tmp", "/tmp")  # noqa: S108 - the directory itself is made by mkdtemp
_MAX_BYTES = 90  # of its path: that of a Unix socket in it may have 107
_NEEDED_BYTES = 1 << 16


@contextmanager
def run_directory() -> Iterator[Path]:
    """A new directory for this process only, removed at the end; those of killed runners are removed now.

    It is where temporary files belong (TMPDIR), or elsewhere if nothing can be written there. Raises
    RunDirectoryUnusable.
    """
    problems = []
    for parent in dict.fromkeys((_temporary(), *_ELSEWHERE)):
        with ExitStack() as stack:
            try:
                directory = stack.enter_context(own_directory(_PREFIX, Path(parent)))
                _check(directory)
            except OSError as problem:
                problems.append(f"{parent}: {problem.strerror or problem}")
                continue
            yield directory
            return
    raise RunDirectoryUnusable(reason="; ".join(problems))


def _temporary() -> str:
    return os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - only named in a message


def _check(directory: Path) -> None:
    """Raise OSError unless sockets can be named and files can be written in `directory`."""
    if len(os.fsencode(directory)) > _MAX_BYTES:
        raise OSError("the path is too long for sockets")
    trial = directory / "trial"
    trial.write_bytes(bytes(_NEEDED_BYTES))
    trial.unlink()
