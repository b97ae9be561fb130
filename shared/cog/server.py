"""Start Cog's HTTP server for one of our predictors, as the images do, and stop it with all its children."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

import httpx2

from shared.errors import CogServerFailed, PortInUse
from shared.layout import PROJECT_ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

PREDICTORS = {"builder": "run.py:Builder", "runner": "run.py:Runner"}
# A runner has its server watched over, and drained before it ends.
SERVERS = {"builder": "cog.server.http", "runner": "runner.supervisor"}
_POLL_SECONDS = 0.02
_ANSWER_SECONDS = 10
# The servers are on this machine and speak plain HTTP: to load certificates would only take time.
TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def server_command(package: str, host: str) -> list[str]:
    """The program that serves the predictor of `package`, which is the working directory."""
    return [sys.executable, "-m", SERVERS[package], "--host", host]


def server_environment(package: str, port: int, concurrency: int) -> dict[str, str]:
    """What Cog's server needs in its environment to serve `package`.

    Cog starts its worker as the first `python` on PATH, so ours must come first. With PYTHONSAFEPATH the
    working directory (the package itself) does not shadow modules of other packages.
    """
    return {
        "COG_PREDICT_TYPE_STUB": PREDICTORS[package],
        "COG_MAX_CONCURRENCY": str(concurrency),
        "PORT": str(port),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),  # noqa: PTH120 - sys.executable must not be resolved: an environment is found by its link
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


class CogServer:
    """A running Cog server. Use it as a context manager."""

    def __init__(
        self,
        package: str,
        *,
        port: int = 0,
        concurrency: int = 1,
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
    ) -> None:
        """Start serving `package` on loopback; port 0 takes a free one, `output` is a file descriptor.

        Raises E4003 when the port is taken.
        """
        self.port = port or free_port()
        if port:
            refuse_used_port(port)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            server_command(package, "127.0.0.1"),
            cwd=PROJECT_ROOT / package,
            env={
                **os.environ,
                **server_environment(package, self.port, concurrency),
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output is not None else None,
            start_new_session=True,
        )

    def health(self) -> dict[str, object]:
        """The answer of /health-check; status STARTING while the server does not listen yet."""
        try:
            answer: dict[str, object] = httpx2.get(
                f"{self.url}/health-check", timeout=_ANSWER_SECONDS, verify=TRUSTS_NOBODY
            ).json()
        except httpx2.TransportError:
            return {"status": "STARTING"}
        return answer

    def wait_ready(self, timeout: float) -> float:
        """Wait until the predictor is set up; return the seconds it took from this call.

        Raises E4004 when set-up fails, the server ends, or `timeout` seconds pass.
        """
        started = time.monotonic()
        while (waited := time.monotonic() - started) < timeout:
            answer = self.health()
            if answer["status"] == "READY" and self._has_schema():
                return waited
            if answer["status"] in {"SETUP_FAILED", "DEFUNCT"}:
                raise CogServerFailed(reason=_setup_log(answer))
            if self.process.poll() is not None:
                raise CogServerFailed(reason=f"the server ended with status {self.process.returncode}")
            time.sleep(_POLL_SECONDS)
        raise CogServerFailed(reason=f"it was not ready after {timeout:g} s")

    def _has_schema(self) -> bool:
        """Cog says READY a moment before it has read the schema, and refuses event streams until then."""
        answer = httpx2.get(f"{self.url}/openapi.json", timeout=_ANSWER_SECONDS, verify=TRUSTS_NOBODY)
        return answer.status_code == httpx2.codes.OK

    def stop(self, grace: float = 20) -> None:
        """End the server: SIGTERM, and SIGKILL for its session after `grace` seconds."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def refuse_used_port(port: int) -> None:
    """Raise E4003 when something listens on the port already."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as taken:
            raise PortInUse(port=port) from taken


def _setup_log(answer: dict[str, object]) -> str:
    setup = answer.get("setup")
    logs = setup.get("logs") if isinstance(setup, dict) else None
    return str(logs or "set-up failed").strip()[-2000:]
