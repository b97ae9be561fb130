"""Run a command, and leave nothing of it behind: neither when it ends, nor when the build is killed.

    python guard.py SOCKET COMMAND ARGUMENT...

SOCKET is an open descriptor whose other end the builder holds. How the command ended is written there, as
`Report`; when the other end is closed, however the builder ended, everything that the command started is
killed, even what put itself into a session of its own. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from typing import TypedDict

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Report(TypedDict):
    """How the command ended."""

    status: int  # below 0: the signal that killed it
    peak_memory: int  # bytes; of its largest process
    error: int  # errno: why it could not be started; else 0


def main() -> None:
    """Run the command line, report and exit."""
    builder = socket.socket(fileno=int(sys.argv[1]))
    libc = ctypes.CDLL(None)
    # Processes that lose their parent become children of this one, and can be found.
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = subprocess.Popen(
            sys.argv[2:],
            # If only this process is killed, at least the command ends with it.
            preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509  one thread
        )
    except OSError as error:
        _send(builder, Report(status=0, peak_memory=0, error=error.errno or errno.EIO))
        return
    threading.Thread(target=_wait_for_end, args=(builder,), daemon=True).start()
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == child.pid:
            break
    _kill_all()
    _send(
        builder,
        Report(status=os.waitstatus_to_exitcode(status), peak_memory=usage.ru_maxrss * 1024, error=0),
    )


def _wait_for_end(builder: socket.socket) -> None:
    builder.recv(1)
    _kill_all()
    os._exit(1)


def _send(builder: socket.socket, report: Report) -> None:
    try:
        builder.sendall(json.dumps(report).encode())
    except OSError:  # nobody listens any more
        pass


def _kill_all() -> None:
    """Kill every descendant: the children of one that dies become children of this process."""
    while True:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208  faster, and this may have to be fast
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - likewise faster
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == own:
            found.append(int(name))
    return found


if __name__ == "__main__":
    main()
