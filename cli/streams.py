"""Standard input and output as a command finds them: closed, full, or for another encoding than UTF-8."""

from __future__ import annotations

import io
import os
import select
import sys
from typing import TYPE_CHECKING

from shared.errors import InvalidArgument, OutputRefused
from shared.log_pipe import open_standard_streams

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def prepare_streams() -> None:
    """Make sys.stdin, sys.stdout and sys.stderr ones that every command can use.

    One that is closed becomes /dev/null: otherwise the next file to be opened would get its number, and what
    is meant for it. Characters that an encoding lacks are written as escapes. COLUMNS=0 means no width, as
    for Python.
    """
    if os.environ.get("COLUMNS", "").strip("0") == "":  # rich would print nothing
        os.environ.pop("COLUMNS", None)
    open_standard_streams()
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Output(1, "w", closefd=False)),
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
        line_buffering=os.isatty(1),
    )


def read_input(meant_for: str) -> str:
    """All of stdin, `meant_for` this argument. Raises InvalidArgument when it is not UTF-8."""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidArgument(argument=meant_for, value="binary", reason="it must be text in UTF-8") from None


class _Output(io.FileIO):
    """Raises OutputRefused; BrokenPipeError for a reader that has left, with which typer ends quietly."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            written = super().write(data)
            if written is None:  # whoever shares it has made it non-blocking
                select.select((), (self,), ())
            return written or 0
        except BrokenPipeError:
            raise
        except OSError as error:
            # What is buffered would fail once more at the end of the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout = sys.stderr
            raise OutputRefused(
                path="stdout", reason=error.strerror, fix="Direct it to another place"
            ) from None
