"""The worker's side of runner/supervisor.py."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

from runner.supervisor import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable


def report_ready(drain: Callable[[float], object], seconds: float) -> None:
    """Tell the supervisor, where there is one, that this worker is set up.

    `drain` is called, with `seconds`, when it wants this worker to finish.
    """
    path = os.environ.get(CONTROL)
    if path is None:
        return
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    connection.sendall(f"ready {seconds}\n".encode())

    def obey() -> None:
        if connection.recv(64) == b"drain\n":
            drain(seconds)
            connection.sendall(b"drained\n")

    threading.Thread(target=obey, name="supervised", daemon=True).start()
