"""Finding the processes that a test started, however they were started."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK = "COG_TRITON_TEST_MARK"


def marked(mark: str) -> dict[int, str]:
    """The live processes whose environment holds this mark: process id and command line."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, ProcessLookupError):
            continue
        if f"{MARK}={mark}".encode() in environment and state != b"Z" and int(process.name) != os.getpid():
            found[int(process.name)] = command
    return found


def descendants(pid: int) -> set[int]:
    """The processes below this one that are there now."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ProcessLookupError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except (OSError, ProcessLookupError):
        return False


def wait_gone(mark: str, seconds: float = 15) -> dict[int, str]:
    """What is left of the marked processes after at most that many seconds."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def pid_of(mark: str, part: str) -> int:
    """The marked process whose command line holds `part`; there must be one."""
    (pid,) = [pid for pid, command in marked(mark).items() if part in command]
    return pid
