"""Reports in files: refused before a run if they cannot be written, and whole or as they were."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from shared.artifact.partial import appearing_file, partial_of
from shared.errors import OutputRefused
from shared.file_system import may_be_replaced


def check_report(path: Path) -> None:
    """Raise OutputRefused unless `write_report` can write to `path`; nothing is left there."""
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        place = _place(path)
        if place is None:
            return
        if place.exists() and not may_be_replaced(place):
            raise PermissionError(errno.EPERM, "it is another user's, and only its owner may replace it")
        partial = partial_of(place)
        partial.touch(exist_ok=False)
        partial.unlink()
    except OSError as error:
        raise _refused(path, error) from None


def write_report(path: Path, text: str) -> None:
    """In UTF-8. Raises OutputRefused, and leaves an earlier report as it was."""
    try:
        place = _place(path)
        if place is None:
            path.write_text(text, encoding="utf-8")
        else:
            with appearing_file(place) as file:
                file.write(text.encode())
    except OSError as error:
        raise _refused(path, error) from None


def _place(path: Path) -> Path | None:
    """The file to replace, behind all links; None for a pipe, a device, or a file that is mounted by itself,
    which are written to.
    """
    place = Path(os.path.realpath(path))
    if path.exists() and (not path.is_file() or place.stat().st_dev != place.parent.stat().st_dev):
        return None
    return place


def _refused(path: Path, error: OSError) -> OutputRefused:
    return OutputRefused(path=path, reason=error.strerror, fix="Choose another file")
