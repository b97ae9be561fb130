"""Start Cog's HTTP server for one of our predictors, and stop it with all its children."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time
from typing import TYPE_CHECKING, Self

import httpx2

from shared.cog.server import free_port, refuse_used_port, server_command, server_environment
from shared.errors import ServerNotReady, from_text
from shared.layout import PROJECT_ROOT
from shared.signals import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_POLL_SECONDS = 0.02
_ANSWER_SECONDS = 10
_MAX_SHOWN = 2000
# The servers are on this machine and speak plain HTTP: to load certificates would only take time.
TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class CogServer:
    """A running Cog server. Use it as a context manager."""

    def __init__(
        self,
        package: str,
        *,
        port: int = 0,
        concurrency: int | None = None,
        environment: Mapping[str, str] | None = None,
        output: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        """Start serving `package` on loopback; port 0 takes a free one, `output` is a file descriptor.

        `prefix`: a program that starts the server, and its arguments.

        Raises PortInUse when the port is taken.
        """
        self.port = port or free_port()
        if port:
            refuse_used_port(port)
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [*prefix, *server_command(package, "127.0.0.1")],
            cwd=PROJECT_ROOT / package,
            env={
                **os.environ,
                **server_environment(self.port, concurrency),
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

        Raises what the set-up fails with, and ServerNotReady when the server ends or `timeout` seconds pass.
        """
        started = time.monotonic()
        while (waited := time.monotonic() - started) < timeout:
            answer = self.health()
            if answer["status"] == "READY" and self._has_schema():
                return waited
            if answer["status"] in {"SETUP_FAILED", "DEFUNCT"}:
                logs = _setup_log(answer)
                raise from_text(logs) or ServerNotReady(reason=logs)
            if self.process.poll() is not None:
                raise ServerNotReady(reason=f"it ended with {in_words(self.process.returncode)}")
            time.sleep(_POLL_SECONDS)
        raise ServerNotReady(reason=f"{timeout:g} s were not enough")

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


def _setup_log(answer: dict[str, object]) -> str:
    setup = answer.get("setup")
    logs = setup.get("logs") if isinstance(setup, dict) else None
    return str(logs or "its set-up failed").strip()[-_MAX_SHOWN:]
