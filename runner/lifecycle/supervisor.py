"""Keeps Cog's server running, and ends it without losing what it works on: the first process of a runner.

    python -m runner.lifecycle.supervisor [--host ADDRESS]

Cog closes its port on SIGTERM, so that new predictions would get no answer at all, and it does not come back
from the death of its worker. Here SIGTERM first drains the runner; a server or a worker that dies is started
again, after a pause that grows, until they die too often.

The worker connects to a Unix socket (supervised.py). Lines on it: `starting SECONDS` from the worker,
with the longest that its set-up may take; `ready SECONDS` from it, with the longest that draining may take;
`drain` to it, and `drained` from it.

Cog tells of a set-up that fails (SETUP_FAILED), but of a worker that dies before they have met it would say
STARTING for ever. So the worker is looked for until it is ready.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runner.lifecycle.children import adopt_orphans, children, die_with_parent, end_children, reap_adopted
from shared.errors import CogTritonError, SetupTimedOut, WorkerDied, from_text

CONTROL = "COG_TRITON_CONTROL"  # the environment variable with the path of the socket
_PAUSES = (0.1, 0.5, 2, 5, 15)
_MOST_DEATHS = 5
_DEATHS_WITHIN_SECONDS = 300
_END_SECONDS = 10  # what Cog may take to end once nothing runs, and the worker to end without Cog
_LOOK_SECONDS = 0.5  # between two looks for a worker that is not ready
_REAP_SECONDS = 5  # between two looks for what others left behind and has ended
_GONE_SECONDS = 2  # without a worker: Cog has noticed by then, if it ever does
_IMPORT_SECONDS = 600  # until the worker says how long its set-up may take


class Supervisor:
    """One server after the other, until a signal ends it."""

    def __init__(self, host: str, directory: Path) -> None:
        self._host = host
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
        """Return the exit status: 0 after a signal, 1 when there were too many deaths.

        1 too when the first server dies before its set-up is over, or takes too long: it would do so again.
        """
        adopt_orphans()  # a worker must not outlive its server, even if it hangs
        deaths: list[float] = []
        was_ready = False
        while True:
            server = _Server(self._host, self._control, self._listener)
            try:
                signalled = server.wait_for_signal(self._signalled)
            except CogTritonError as failed:
                server.end()
                _log(str(failed))
                if not was_ready:
                    return 1
            else:
                if signalled:
                    server.drain(self._signalled)
                    return 0
                server.end()
                was_ready = True
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

    def __init__(self, host: str, control: Path, listener: socket.socket) -> None:
        self._listener = listener
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cog.server.http", "--host", host],
            env={**os.environ, CONTROL: str(control)},
            stdin=subprocess.DEVNULL,
            # A signal for all of a terminal's processes is for this one to handle.
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
        )
        self._ended = os.pidfd_open(self._process.pid)
        self._host = host
        self._worker: socket.socket | None = None
        self._setup_seconds: float = _IMPORT_SECONDS
        self._deadline = time.monotonic() + _IMPORT_SECONDS
        self._failed = False  # Cog says so, and keeps saying so: nothing is started again
        self._drain_seconds: float | None = None

    def wait_for_signal(self, signalled: socket.socket) -> bool:
        """Wait for a signal, or for the death of the server, or of its worker: then False.

        Raises E4005 for a death before the worker is ready, E4006 when it takes too long.
        """
        seen = time.monotonic()
        while True:
            starting = self._drain_seconds is None and not self._failed
            readable = self._select(signalled, _LOOK_SECONDS if starting else _REAP_SECONDS)
            if signalled in readable:
                signalled.recv(1)
                return True
            if self._ended in readable:
                if self._drain_seconds is None:
                    raise WorkerDied
                return False
            if self._worker in readable and not self._read() and self._drain_seconds is not None:
                return False
            if not starting:
                reap_adopted(self._process.pid)
                continue
            now = time.monotonic()
            if now > self._deadline:
                raise SetupTimedOut(seconds=self._setup_seconds)
            setup: dict[str, Any] = {}
            if children(self._process.pid) or not (setup := self._setup()):
                seen = now
            elif setup["status"] == "failed":
                self._failed = True
                if from_text(setup.get("logs") or "") is None:
                    _log(str(WorkerDied()))
            elif now - seen > _GONE_SECONDS:
                raise WorkerDied

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
        """Have the server end within `grace` seconds, and what it leaves behind soon after."""
        try:
            self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._ended)
        if self._worker is not None:
            self._worker.close()
        end_children(_END_SECONDS)

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
        if word == "starting":
            self._setup_seconds = float(number)
            self._deadline = time.monotonic() + self._setup_seconds
        elif word == "ready":
            self._drain_seconds = float(number)
        elif not word and self._drain_seconds is None:
            self._worker.close()
            self._worker = None
        return word

    def _setup(self) -> dict[str, Any]:
        """What Cog says of the set-up; nothing while it does not listen yet."""
        import http.client
        import json

        port = int(os.environ.get("PORT", "5000"))
        connection = http.client.HTTPConnection(self._host, port, timeout=_GONE_SECONDS)
        try:
            connection.request("GET", "/health-check")
            return dict(json.loads(connection.getresponse().read())["setup"])
        except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
            return {}
        finally:
            connection.close()


def _log(event: str) -> None:
    from shared.logs import configure_logging

    configure_logging()
    import structlog

    structlog.get_logger("runner.lifecycle.supervisor").error(event)


def main() -> int:
    """Run a supervisor until it ends."""
    parser = argparse.ArgumentParser(prog="runner.lifecycle.supervisor")
    parser.add_argument("--host", default="0.0.0.0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cog-triton-supervisor-") as directory:
        return Supervisor(options.host, Path(directory)).run()


if __name__ == "__main__":
    sys.exit(main())
