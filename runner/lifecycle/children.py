"""The processes below this one: who they are, and their end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02


def children(parent: int) -> list[int]:
    """The live child processes of a process."""
    return [child for child, state in _states(parent) if state != "Z"]


def reap_adopted(own: int) -> None:
    """Take in what has ended of this process's children but `own`, whom somebody else waits for."""
    for child, state in _states(os.getpid()):
        if state == "Z" and child != own:
            os.waitpid(child, 0)


def _states(parent: int) -> list[tuple[int, str]]:
    """The child processes of a process, with their states as in proc(5)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        if int(ppid) == parent:
            found.append((int(path.parent.name), state))
    return found


def adopt_orphans() -> None:
    """What a child leaves behind when it ends becomes a child of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children(grace: float) -> None:
    """Wait until this process has no child; kill those that are there after `grace` seconds."""
    deadline = time.monotonic() + grace
    try:
        while True:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    for child in children(os.getpid()):
                        os.kill(child, signal.SIGKILL)
                time.sleep(_POLL_SECONDS)
    except ChildProcessError:
        pass


def die_with_parent() -> None:
    """Be killed when the thread ends that started this process. For `preexec_fn`."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value)
