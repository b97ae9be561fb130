"""Child processes of a build: followed line by line, measured, and never left behind."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder import guard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from builder.guard import Report

_POLL_SECONDS = 0.2  # a cancelled build is noticed between two polls
_MAX_LINE = 1 << 16  # bytes; a longer line is passed on in pieces
_LINE_END = re.compile(rb"\r\n|\r|\n")  # progress bars end their lines with only \r
_END_SECONDS = 10
_GUARD = guard.__file__
_MAX_REPORT = 4096  # bytes
# Everything else stays here: a child that reads foreign files needs no secrets.
PASSED_ON = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "TMPDIR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    status: int  # below 0: the signal that killed it
    seconds: float
    peak_memory: int  # bytes; of the largest process of its tree


def environment(names: Sequence[str] = PASSED_ON) -> dict[str, str]:
    """Those of the variables `names` that this process has."""
    return {name: os.environ[name] for name in names if name in os.environ}


def follow_child(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    on_complaint: Callable[[str], None] | None = None,
    on_poll: Callable[[], None] = lambda: None,
) -> Ended:
    """Run `command` until it ends. `on_line` gets each line of its stdout, `on_complaint` of its stderr;
    without the latter, `on_line` gets both in order. `on_poll` is called several times a second.

    All its descendants are killed when this call returns or raises, or this process ends in any way
    (`guard.py`). Raises `OSError` when the command cannot be started.
    """
    started = time.monotonic()
    own, other = socket.socketpair()
    with own:
        with other:
            process = subprocess.Popen(
                [sys.executable, "-IS", _GUARD, str(other.fileno()), *command],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if on_complaint else subprocess.STDOUT,
                pass_fds=[other.fileno()],
                process_group=0,
            )
        readers = {process.stdout: on_line, process.stderr: on_complaint}
        try:
            _follow(
                process.pid,
                {pipe.fileno(): _Lines(reader) for pipe, reader in readers.items() if pipe and reader},
                on_poll,
            )
        finally:
            own.shutdown(socket.SHUT_WR)
            _end(process)
            for pipe in filter(None, readers):
                pipe.close()
        report = own.recv(_MAX_REPORT)
    if not report:  # the guard itself was killed
        return Ended(process.returncode, time.monotonic() - started, 0)
    ended: Report = json.loads(report)
    if ended["error"]:
        raise OSError(ended["error"], os.strerror(ended["error"]), command[0])
    return Ended(ended["status"], time.monotonic() - started, ended["peak_memory"])


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Lines:
    """Cuts what arrives into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        """Take some bytes; none at the end."""
        *lines, self._rest = _LINE_END.split(self._rest + chunk)
        if len(self._rest) > _MAX_LINE or not chunk:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            if text := line.decode(errors="replace").rstrip():
                self._on_line(text)


def _follow(pid: int, readers: Mapping[int, _Lines], on_poll: Callable[[], None]) -> None:
    """Pass on what arrives until all pipes are closed, or the child has ended and nothing more comes:
    processes that it leaves behind may hold its pipes open for ever.
    """
    with selectors.DefaultSelector() as selector:
        for pipe, lines in readers.items():
            selector.register(pipe, selectors.EVENT_READ, lines)
        polled = 0.0
        while selector.get_map():
            ready = selector.select(_POLL_SECONDS)
            for key, _ in ready:
                chunk = os.read(key.fd, _MAX_LINE)
                key.data.feed(chunk)
                if not chunk:
                    selector.unregister(key.fd)
            if time.monotonic() - polled > _POLL_SECONDS:
                on_poll()
                polled = time.monotonic()
            if not ready and _has_ended(pid):
                return
    while not _has_ended(pid):
        time.sleep(_POLL_SECONDS)
        on_poll()


def _has_ended(pid: int) -> bool:
    """Whether the child has ended; it stays a zombie."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
