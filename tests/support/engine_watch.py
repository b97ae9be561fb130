"""What the bridge says about its engine over a feed."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

from runner.protocol.engine import Statistics
from runner.protocol.feed import EngineState, EngineStatus, FeedReader, FeedStatistics

if TYPE_CHECKING:
    from pathlib import Path

_SETTLED_SECONDS = 1.2  # the bridge tells figures once a second while requests run


class EngineWatch:
    """A feed that no request names, opened when it is first asked; before Triton listens all is as at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._reader = FeedReader()
        self._status = EngineStatus(EngineState.STARTING, 0, None)
        self._figures = FeedStatistics(0, Statistics())

    @property
    def status(self) -> EngineStatus:
        """The newest."""
        self._read()
        return self._status

    @property
    def statistics(self) -> Statistics:
        """At most a second old while requests run."""
        self._read()
        return self._figures.statistics

    def wait_in_flight(self, number: int, seconds: float = 20) -> None:
        """Wait until the engine has had that many requests for longer than figures may be old."""
        deadline, since = time.monotonic() + seconds, None
        while since is None or time.monotonic() - since < _SETTLED_SECONDS:
            self._read()
            if self._figures.in_flight != number:
                since = None
            elif since is None:
                since = time.monotonic()
            assert time.monotonic() < deadline, self._figures
            time.sleep(0.01)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _read(self) -> None:
        try:
            if self._socket is None:
                connecting = socket.socket(socket.AF_UNIX)
                try:
                    connecting.connect(str(self._path))
                except OSError:
                    connecting.close()
                    return
                connecting.settimeout(5)
                self._socket = connecting
                self._take(connecting.recv(1 << 16))
            self._socket.setblocking(False)
            while data := self._socket.recv(1 << 16):
                self._take(data)
        except BlockingIOError:
            pass

    def _take(self, data: bytes) -> None:
        for it in self._reader.messages(data):
            if isinstance(it, EngineStatus):
                self._status = it
            elif isinstance(it, FeedStatistics):
                self._figures = it
