"""How these programs end: a Problem, or a file that cannot be used, is one line on stderr; status 1."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_late: list[int] | None = None
"""The signals that wait for the end of `unbroken`; None outside."""


@contextmanager
def running() -> Iterator[None]:
    """Run what a program does. What ends it early leaves nothing behind: no folder, no other program."""
    for number in _SIGNALS:
        # nohup ignores SIGHUP for what it starts.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
        print(end="", flush=True)
    except Problem as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt as by:
        sys.exit(128 + int(by.args[0] if by.args else signal.SIGINT))
    except BrokenPipeError:
        # The reader has gone, and has said why.
        _forget_output()
        sys.exit(1)
    except OSError as error:
        _forget_output()
        sys.exit(_told(error))


@contextmanager
def unbroken() -> Iterator[None]:
    """What would end this early ends it afterwards: a program that was started is known then."""
    global _late  # noqa: PLW0603 - signals are the process's
    _late = []
    try:
        yield
    finally:
        late, _late = _late, None
        if late:
            _interrupt(late[0], None)


def _interrupt(by: int, _frame: object) -> None:
    """Only once: a terminal that is closed sends more, which would cut short what is removed."""
    if _late is not None:
        _late.append(by)
        return
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(by)


def _forget_output() -> None:
    """Python writes nothing more to standard output when it ends, and does not complain."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"A disk is full: make room where the output goes, and in {tempfile.gettempdir()}, "
            "where layers are made (TMPDIR sets another place)."
        )
    if error.filename is None and error.errno == errno.ENOENT:
        return "No folder for temporary files can be written to: set TMPDIR to one with room for layers."
    if error.filename is None:
        return f"The output cannot be written: {error.strerror}."
    return f"{error.filename} cannot be used: {error.strerror}."
