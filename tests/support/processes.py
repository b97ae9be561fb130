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
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ProcessLookupError):
            continue
        if f"{MARK}={mark}".encode() in environment and state != "Z" and int(process.name) != os.getpid():
            found[int(process.name)] = command
    return found


def wait_gone(mark: str, seconds: float = 15) -> dict[int, str]:
    """What is left of the marked processes after at most so many seconds."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def pid_of(mark: str, part: str) -> int:
    """The marked process whose command line holds `part`; there must be one."""
    (pid,) = [pid for pid, command in marked(mark).items() if part in command]
    return pid
