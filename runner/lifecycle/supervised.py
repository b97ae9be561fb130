"""The worker's side of runner/lifecycle/supervisor.py."""

from __future__ import annotations

import os
import socket
import threading
from typing import TYPE_CHECKING

from runner.lifecycle.supervisor import CONTROL

if TYPE_CHECKING:
    from collections.abc import Callable


class Supervised:
    """The connection to the supervisor, where there is one."""

    def __init__(self, setup_seconds: float) -> None:
        """Tell it that the set-up begins, and how long it may take."""
        self._connection: socket.socket | None = None
        if path := os.environ.get(CONTROL):
            self._connection = socket.socket(socket.AF_UNIX)
            self._connection.connect(path)
            self._say("starting", setup_seconds)

    def ready(self, drain: Callable[[float], object], seconds: float) -> None:
        """Tell it that the set-up is done.

        `drain(seconds)` is called when it wants this worker to finish.
        """
        if self._connection is None:
            return
        connection = self._connection
        self._say("ready", seconds)

        def obey() -> None:
            if connection.recv(64) == b"drain\n":
                drain(seconds)
                connection.sendall(b"drained\n")

        threading.Thread(target=obey, name="supervised", daemon=True).start()

    def _say(self, word: str, seconds: float) -> None:
        if self._connection is not None:
            self._connection.sendall(f"{word} {seconds}\n".encode())
