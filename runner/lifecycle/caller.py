"""A supervisor below the process that wants its engine, which serves nobody else and ends with it."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from shared.layout import PROJECT_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


def start_supervisor(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process, and this end of a connection as in control.py: when it is closed, the supervisor ends."""
    near, far = socket.socketpair()
    with far:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner.lifecycle", "--caller-fd", str(far.fileno())],
            env={"PYTHONPATH": str(PROJECT_ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the caller's own; all logs go to stderr
            pass_fds=[far.fileno()],
            process_group=0,  # Ctrl-C is for the caller, which then ends it
        )
    return process, near
