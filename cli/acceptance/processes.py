"""What becomes of a server when one of its processes is killed, and when it is ended: for every engine."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from .check import Outcome
from .generation import references
from .server import command_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .bench import Bench
    from .server import Server

_TOKENS = 16
_AGAIN_SECONDS = 900
_GONE_SECONDS = 10


def served_again(
    bench: Bench, server: Server, processes: Callable[[Server], list[int]], what: str
) -> Outcome:
    """Kill the last of some processes: soon others replace all of them, and serve."""

    def texts() -> list[str]:
        return [server.complete(reference.prompt, _TOKENS).text for reference in references(bench)]

    written = texts()
    before = processes(server)
    os.kill(before[-1], signal.SIGKILL)
    expected = f"other {what}, which serve"
    until = time.monotonic() + _AGAIN_SECONDS
    while time.monotonic() < until:
        there = processes(server)
        if len(there) == len(before) and not set(there) & set(before) and server.is_ready():
            now = texts()
            return Outcome(expected, expected if now == written else f"{now} for {written}")
        time.sleep(0.1)
    return Outcome(expected, f"{what} {processes(server)} after {_AGAIN_SECONDS} s; before: {before}")


def ends_whole(server: Server) -> Outcome:
    """End a server with SIGTERM: none of its processes is left."""
    processes = server.processes()
    status = server.stop()
    until = time.monotonic() + _GONE_SECONDS
    while left := [command for pid, command in processes.items() if command and command_of(pid) == command]:
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    told = ", ".join(f"left: {command}" for command in left) or "nothing left"
    return Outcome("status 0, nothing left", f"status {status}, {told}")
