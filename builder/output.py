"""Where a build writes: refused before it begins if that is not a place for an engine.tar."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.artifact import partial_of, read_manifest
from shared.errors import CogTritonError, OutputRefused
from shared.file_system import is_read_only, may_be_replaced

if TYPE_CHECKING:
    from pathlib import Path

_IN_THE_API = "(in the builder's API: with BUILDER_OUTPUT_DIR)"
LOG_MARK = "== "
"""How a line of the log that names a step begins; the log begins the same way."""


def log_of(output: Path) -> Path:
    """The output of TensorRT-LLM's tools; beside the archive, and kept when the build fails."""
    return output.with_name(f"{output.name}.log")


def check_output(output: Path) -> None:
    """Raise OutputRefused unless `output` can be written, and anything already there comes from a build.

    A config, a checkpoint or anything else that was named by mistake is not overwritten.
    """
    try:
        _check(output)
    except OSError as error:
        path = error.filename or output
        raise OutputRefused(
            path=path, reason=error.strerror, fix=f"Choose another file {_IN_THE_API}"
        ) from None


def _check(output: Path) -> None:
    """Raises OutputRefused, and OSError where nothing can be found out."""
    if output.is_dir():
        raise OutputRefused(
            path=output, reason="it is a directory", fix=f"Choose a file, such as {output / 'engine.tar'}"
        )
    if output.is_symlink():
        raise OutputRefused(
            path=output,
            reason="it is a symbolic link, which the archive would replace",
            fix=f"Name the file that it points to, or choose another one {_IN_THE_API}",
        )
    if not output.parent.is_dir():
        raise OutputRefused(
            path=output,
            reason=f"there is no directory {output.parent}",
            fix=f"Create it, or choose another file {_IN_THE_API}",
        )
    folder = output.parent.absolute()  # `.` at the end of a sentence would be read as `..`
    if is_read_only(folder):
        raise OutputRefused(
            path=output,
            reason=f"{folder} is on a read-only file system",
            fix=f"Choose a file in another directory {_IN_THE_API}",
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputRefused(
            path=output,
            reason=f"this user may not write to {folder}",
            fix=f"Change its permissions, or choose a file in another directory {_IN_THE_API}",
        )
    partial_of(output).exists()  # raises for a name too long, as it is the longest
    for path in (output, log_of(output)):
        if path.exists() and not may_be_replaced(path):
            raise OutputRefused(
                path=path,
                reason="it is another user's, in a folder where only its owner may replace it",
                fix=f"Choose another file {_IN_THE_API}",
            )
    for path, is_ours in ((output, _is_archive), (log_of(output), _is_log)):
        if path.exists() and not is_ours(path):
            raise OutputRefused(
                path=path,
                reason="what is there was not written by a build, and would be lost",
                fix=f"Remove that file, or choose another one {_IN_THE_API}",
            )


def _is_archive(path: Path) -> bool:
    """Whether it is an engine.tar, or empty. Only files are read: anything else could wait for ever."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        try:
            return not path.stat().st_size or read_manifest(stream) is not None
        except CogTritonError:
            return False


def _is_log(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(LOG_MARK)) in (LOG_MARK.encode(), b"")
