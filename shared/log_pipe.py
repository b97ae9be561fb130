"""Standard error (and output) that never block: a pipe that this process always reads, and passes on.

What a service and its children write goes into the pipe, whatever writes it: libraries in C, too. One thread
reads the pipe, another writes to the place that was there before. If that place takes nothing (a pipe that
nobody reads, a full disk), only lines are lost; they are counted. Standard library only.
"""

from __future__ import annotations

import fcntl
import io
import os
import select
import signal
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from shared.log_lines import LineCutter, lost_notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIPE_BYTES = 1 << 20
"""How far ahead of a reader that pauses its writers may be; as much again waits in this process."""
_READ_BYTES = 1 << 16
_PARTIAL_MILLISECONDS = 50  # then what has no end is passed on: it may be a progress bar, or a question
_RETRY_SECONDS = 1.0  # how often a place that refused a line is told how many are missing
_END_SECONDS = 1.0
_TERMINAL_PIPE = "COG_TRITON_TERMINAL_PIPE"
"""The environment variable with the number of the pipe whose place is a terminal, for children."""


def stderr_is_terminal() -> bool:
    """Whether what is written to standard error is shown to a person at a terminal."""
    if sys.stderr.isatty():
        return True
    pipe = os.environ.get(_TERMINAL_PIPE)
    return pipe is not None and pipe == str(os.fstat(2).st_ino)


def open_standard_streams() -> None:
    """Make /dev/null of standard streams that are closed: otherwise the next file or connection to be opened
    would get that number, and what is meant for the stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # so this is the lowest number that is free
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = sys.stdout or io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = sys.stderr or io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)


@contextmanager
def never_block(*descriptors: int) -> Iterator[None]:
    """Nobody who writes to these standard streams waits for their readers: neither this process nor the
    children that it starts. At the end, the last lines have a second to be written.
    """
    open_standard_streams()
    terminal = None
    with suppress(OSError):
        terminal = os.get_terminal_size(2)
    pipes: list[_LogPipe] = []
    with suppress(OSError):  # no more descriptors: what is left stays as it is
        pipes.extend(map(_LogPipe, descriptors))
    if terminal is not None:
        os.environ[_TERMINAL_PIPE] = str(os.fstat(2).st_ino)
        os.environ.setdefault("COLUMNS", str(terminal.columns))
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        for pipe in pipes:
            pipe.end()
        deadline = time.monotonic() + _END_SECONDS
        for pipe in pipes:
            pipe.restore(deadline)


class _LogPipe:
    """In the place of one standard stream."""

    def __init__(self, descriptor: int) -> None:
        """Raises OSError."""
        self._descriptor = descriptor
        self._place = os.dup(descriptor)
        reading, writing = os.pipe()
        with suppress(OSError):  # the user may have many pipes; it is smaller then
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.dup2(writing, descriptor)
        os.close(writing)
        self._over = os.eventfd(0)
        lines = _Lines()
        self._threads = [
            _started(lambda: _read(reading, self._over, lines)),
            _started(lambda: _Place(self._place).write_all(lines)),
        ]

    def end(self) -> None:
        """Write no more into the pipe. Its threads end once what waits is written."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._descriptor)
        os.close(nowhere)
        os.eventfd_write(self._over, 1)

    def restore(self, deadline: float) -> None:
        """Put back what was there before, unless that takes nothing until then (time.monotonic())."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if not any(thread.is_alive() for thread in self._threads):
            os.dup2(self._place, self._descriptor)


class _Lines:
    """Lines that wait to be written. In place of those beyond `PIPE_BYTES` stands how many they were."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[bytes | int] = deque()
        self._size = 0
        self._ended = False

    def put(self, line: bytes) -> None:
        """Add a line, or part of one."""
        with self._changed:
            if self._size + len(line) <= PIPE_BYTES:
                self._waiting.append(line)
                self._size += len(line)
            elif isinstance(last := self._waiting[-1], int):
                self._waiting[-1] = last + 1
            else:
                self._waiting.append(1)
            self._changed.notify()

    def end(self) -> None:
        """Add no more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def get(self, seconds: float | None) -> bytes | int | None:
        """The next, once there is one; 0 if that takes longer than `seconds`, None at the end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._ended, seconds):
                return 0
            if not self._waiting:
                return None
            item = self._waiting.popleft()
            self._size -= len(item) if isinstance(item, bytes) else 0
            return item


class _Place:
    """Where lines go in the end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._takes = select.poll()
        self._takes.register(descriptor, select.POLLOUT)
        self._torn = False  # whether only a part of the last line could be written
        self._lost = 0

    def write_all(self, lines: _Lines) -> None:
        """Write line by line. One that cannot be written is lost."""
        while (item := lines.get(_RETRY_SECONDS if self._lost else None)) is not None:
            if isinstance(item, int):
                self._lost += item
            if self._lost and self._write(lost_notice(self._lost)):
                self._lost = 0
            if isinstance(item, bytes) and not self._write(item):
                self._lost += 1

    def _write(self, line: bytes) -> bool:
        left = b"\n" + line if self._torn else line
        whole = len(left)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # whoever shares it has made it non-blocking
                self._takes.poll()
            except OSError:
                self._torn = self._torn or len(left) < whole
                return False
        self._torn = False
        return True


def _started(run: Callable[[], None]) -> threading.Thread:
    """A thread that ends with the process, and takes none of its signals."""
    thread = threading.Thread(target=run, name="log", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread


def _read(pipe: int, over: int, lines: _Lines) -> None:
    """Take what arrives, until `over` is readable and nothing waits."""
    cutter = LineCutter()
    arrives = select.poll()
    arrives.register(pipe, select.POLLIN)
    arrives.register(over, select.POLLIN)
    partial = False
    while True:
        ready = [descriptor for descriptor, _ in arrives.poll(_PARTIAL_MILLISECONDS if partial else None)]
        if pipe in ready:
            data = os.read(pipe, _READ_BYTES)
            if not data:  # nobody can write any more
                break
            for line in cutter.feed(data):
                lines.put(line)
            partial = not data.endswith(b"\n")
        elif ready:
            break
        else:
            lines.put(cutter.rest())
            partial = False
    for line in cutter.end():
        lines.put(line)
    lines.end()
    os.close(pipe)
