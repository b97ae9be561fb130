"""Keeps Cog's server running, and ends it without losing what it works on: the first process of a runner.

    python -m runner.supervisor [--host ADDRESS]

Cog closes its port on SIGTERM, so that new predictions would get no answer at all, and it does not come back
from the death of its worker. Here SIGTERM first drains the runner; a server or a worker that dies is started
again, after a pause that grows, until they die too often.

The worker connects to a Unix socket (runner/supervised.py). Lines on it: `ready SECONDS` from the worker,
with the longest that draining may take; `drain` to it, and `drained` from it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTROL = "COG_TRITON_CONTROL"  # the environment variable with the path of the socket
_PAUSES = (0.1, 0.5, 2, 5, 15)
_MOST_DEATHS = 5
_DEATHS_WITHIN_SECONDS = 300
_END_SECONDS = 10  # what Cog may take to end once nothing runs, and the worker to end without Cog
_PR_SET_PDEATHSIG = 1


class Supervisor:
    """One server after the other, until a signal ends it."""

    def __init__(self, host: str, directory: Path) -> None:
        self._command = [sys.executable, "-m", "cog.server.http", "--host", host]
        self._control = directory / "control"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._control))
        self._listener.listen()
        # A signal makes this readable.
        self._signalled, self._wake = socket.socketpair()
        for end in (self._signalled, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)

    def run(self) -> int:
        """Return the exit status: 0 after a signal, 1 when there were too many deaths."""
        deaths: list[float] = []
        while True:
            server = _Server(self._command, self._control, self._listener)
            if server.wait_for_signal(self._signalled):
                server.drain(self._signalled)
                return 0
            server.end()
            now = time.monotonic()
            deaths = [death for death in deaths if now - death < _DEATHS_WITHIN_SECONDS] + [now]
            if len(deaths) > _MOST_DEATHS:
                _log(f"Cog's server died {len(deaths)} times: it is not started again")
                return 1
            pause = _PAUSES[len(deaths) - 1]
            _log(f"Cog's server or its worker died: starting again in {pause:g} s")
            if select.select([self._signalled], [], [], pause)[0]:
                return 0


class _Server:
    """One Cog server and its worker."""

    def __init__(self, command: list[str], control: Path, listener: socket.socket) -> None:
        self._listener = listener
        self._process = subprocess.Popen(
            command,
            env={**os.environ, CONTROL: str(control)},
            stdin=subprocess.DEVNULL,
            # A signal for all of a terminal's processes is for this one to handle.
            process_group=0,
            preexec_fn=_die_with_supervisor,  # noqa: PLW1509 - this process has one thread
        )
        self._ended = os.pidfd_open(self._process.pid)
        self._worker: socket.socket | None = None
        self._drain_seconds: float | None = None

    def wait_for_signal(self, signalled: socket.socket) -> bool:
        """Wait for a signal, or for the death of the server, or of a worker that was ready: then False."""
        while True:
            readable = self._select(signalled)
            if signalled in readable:
                signalled.recv(1)
                return True
            if self._ended in readable:
                return False
            if self._worker in readable and not self._read() and self._drain_seconds is not None:
                return False

    def drain(self, signalled: socket.socket) -> None:
        """Let the worker finish what it does, then end the server. Another signal ends it at once."""
        if self._worker is not None and self._drain_seconds is not None:
            deadline = time.monotonic() + self._drain_seconds + _END_SECONDS
            self._worker.sendall(b"drain\n")
            while (left := deadline - time.monotonic()) > 0:
                readable = self._select(signalled, left)
                if {signalled, self._ended, self._worker} & set(readable):
                    break
        self._process.terminate()
        self.end(_END_SECONDS)

    def end(self, grace: float = 0) -> None:
        """Have the server end within `grace` seconds, and wait for its worker, which ends with it."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._ended)
        if self._worker is not None:
            self._worker.settimeout(_END_SECONDS)
            try:
                while self._worker.recv(64):
                    pass
            except OSError:
                pass
            self._worker.close()

    def _select(self, signalled: socket.socket, timeout: float | None = None) -> list[socket.socket | int]:
        sources: list[socket.socket | int] = [signalled, self._listener, self._ended]
        if self._worker is not None:
            sources.append(self._worker)
        readable = select.select(sources, [], [], timeout)[0]
        if self._listener in readable:
            self._worker = self._listener.accept()[0]
        return readable

    def _read(self) -> str:
        """What the worker says; nothing once it is gone."""
        if self._worker is None:
            return ""
        word, _, number = self._worker.recv(64).decode().strip().partition(" ")
        if word == "ready":
            self._drain_seconds = float(number)
        return word


def _die_with_supervisor() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _log(event: str) -> None:
    from shared.logs import configure_logging

    configure_logging()
    import structlog

    structlog.get_logger("runner.supervisor").error(event)


def main() -> int:
    """Run a supervisor until it ends."""
    parser = argparse.ArgumentParser(prog="runner.supervisor")
    parser.add_argument("--host", default="0.0.0.0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cog-triton-supervisor-") as directory:
        return Supervisor(options.host, Path(directory)).run()


if __name__ == "__main__":
    sys.exit(main())
