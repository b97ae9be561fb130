"""Child processes of a build: followed line by line, measured, and never left behind."""

from __future__ import annotations

import os
import re
import secrets
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_POLL_SECONDS = 0.2  # a cancelled build is noticed between two polls
_MAX_LINE = 1 << 16  # bytes; a longer line is handed on in pieces
_LINE_END = re.compile(rb"\r\n|\r|\n")  # progress bars end their lines with \r alone
_MARK = "COG_TRITON_CHILD"
_END_SECONDS = 10
# Everything else stays here: a child that reads foreign files needs no secret.
PASSED_ON = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "TMPDIR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    status: int  # below 0: the signal that killed it
    seconds: float
    peak_memory: int  # bytes; of the largest process of its tree, and never below that of this process


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
    """Run `command` to its end. `on_line` gets each line of its stdout, `on_complaint` of its stderr; without
    that, `on_line` gets both in their order. `on_poll` is called several times a second.

    All its descendants are killed when this call is left, in whatever way, also those that made themselves a
    session of their own. Raises `OSError` when the command cannot be started.
    """
    mark = secrets.token_hex(16)
    started = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env={**env, _MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if on_complaint else subprocess.STDOUT,
        process_group=0,
    )
    readers = {child.stdout: on_line, child.stderr: on_complaint}
    try:
        _follow(
            child.pid,
            {pipe.fileno(): _Lines(reader) for pipe, reader in readers.items() if pipe and reader},
            on_poll,
        )
    finally:
        # Not reaped yet: its process group must still be its own when it is killed.
        _kill_tree(child.pid, mark)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        for pipe in filter(None, readers):
            pipe.close()
    return Ended(child.returncode, time.monotonic() - started, usage.ru_maxrss * 1024)


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
            if text := line.decode(errors="replace").strip():
                self._on_line(text)


def _follow(pid: int, readers: Mapping[int, _Lines], on_poll: Callable[[], None]) -> None:
    """Hand on what arrives until all pipes are closed, or the child has ended and nothing more comes: what it
    leaves behind may hold its pipes open for ever.
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


def _kill_tree(pid: int, mark: str) -> None:
    """Kill the process group of the child, and whatever has its mark, until there is nothing more."""
    os.killpg(pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_SECONDS
    while (left := list(_marked(mark))) and time.monotonic() < deadline:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _marked(mark: str) -> Iterator[int]:
    """The processes with this mark in their environment; those that have ended have none."""
    wanted = f"{_MARK}={mark}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
