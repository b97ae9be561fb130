"""Temporary files of what tests start and kill."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def own_temporary_files() -> Iterator[Path]:
    """TMPDIR is a directory that is removed at the end. Its path is short: those of sockets in it must be."""
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as directory,
        mock.patch.dict(os.environ, TMPDIR=directory),
    ):
        yield Path(directory)
