"""The Triton process: started, watched, and started again when it dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import structlog

from runner.protocol.feed import EngineState
from shared.errors import CogTritonError, TritonFailedToStart, from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import IO

    from runner.protocol.status import StatusPage
    from shared.layout import Layout

log = structlog.get_logger()

_POLL_SECONDS = 0.01
STOP_GRACE_SECONDS = 5
_BACK_OFF_SECONDS = (0.1, 0.5, 2, 5, 15)
_STABLE_SECONDS = 60
# A thread that is behind by some 250 events loses those that follow: more threads are behind by less.
_HTTP_THREADS = 64


class TritonServer:
    """One tritonserver on loopback, kept alive until `stop`."""

    def __init__(
        self,
        layout: Layout,
        model_repository: Path,
        port: int,
        page: StatusPage,
        *,
        metrics_port: int | None = None,
        http_address: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`port` is gRPC's, `metrics_port` that of Prometheus metrics: without it there are none.

        `http_address`: `host:port` of Triton's HTTP endpoints, which are closed without it. `environment`:
        variables for the engine process, which has all those of Triton.
        """
        self._command = [
            str(layout.tritonserver),
            f"--model-repository={model_repository}",
            f"--backend-directory={layout.backend_directory}",
            "--grpc-address=127.0.0.1",
            f"--grpc-port={port}",
            *http_arguments(http_address),
            *_metrics_arguments(metrics_port),
            "--log-info=false",
            f"--exit-timeout-secs={STOP_GRACE_SECONDS}",
        ]
        self._environment = {
            **os.environ,
            **(environment or {}),
            "LD_LIBRARY_PATH": str(layout.triton_libraries),
        }
        self._page = page
        self._stopping = threading.Event()
        self._last_error: CogTritonError | None = None
        self._process = self._spawn()
        self._watcher: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The process id of the Triton that runs now, or that ran last."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process is there and its engine is loaded."""
        return self._process.poll() is None and self._page.engine_state is EngineState.READY

    def wait_ready(self, is_ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `is_ready`, then begin to watch over the process.

        Raises the coded error that the engine or the bridge ended with, else E4001.
        """
        deadline = time.monotonic() + timeout
        while not is_ready():
            if self._process.poll() is not None:
                self._forwarder.join()
                reason = f"it ended with {_status(self._process.returncode)}"
                raise self._last_error or TritonFailedToStart(reason=reason)
            if time.monotonic() > deadline:
                self.stop()
                raise TritonFailedToStart(reason=f"it was not ready after {timeout:g} s")
            time.sleep(_POLL_SECONDS)
        self._watcher = threading.Thread(target=self._keep_alive, name="triton-watcher", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """End Triton, and with it the engine process."""
        self._stopping.set()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        if self._watcher is not None:
            self._watcher.join()

    def _spawn(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._forwarder = threading.Thread(
            target=self._forward, args=(process.stderr,), name="triton-log", daemon=True
        )
        self._forwarder.start()
        return process

    def _forward(self, lines: IO[str]) -> None:
        """Pass on what Triton, the bridge and the engine write; remember the last coded error in it."""
        with lines:
            for line in lines:
                sys.stderr.write(line)
                self._last_error = from_text(line.rstrip('"\n')) or self._last_error

    def _keep_alive(self) -> None:
        failures = 0
        started = time.monotonic()
        while True:
            status = self._process.wait()
            if self._stopping.is_set():
                return
            if time.monotonic() - started > _STABLE_SECONDS:
                failures = 0
            pause = _BACK_OFF_SECONDS[min(failures, len(_BACK_OFF_SECONDS) - 1)]
            failures += 1
            log.error("triton ended; starting it again", status=_status(status), in_seconds=pause)
            if self._stopping.wait(pause):
                return
            started = time.monotonic()
            self._process = self._spawn()


def _metrics_arguments(port: int | None) -> list[str]:
    if port is None:
        return ["--allow-metrics=false"]
    return [f"--metrics-port={port}", "--metrics-address=127.0.0.1", "--allow-gpu-metrics=false"]


def tritonserver_command(
    layout: Layout, model_repository: Path, *, grpc_port: int, metrics_port: int, http_address: str | None
) -> list[str]:
    """How a tritonserver is started, with gRPC and metrics on loopback.

    `http_address`: `host:port` of Triton's HTTP endpoints, which are closed without it. Raises E4000.
    """
    return [
        str(layout.tritonserver),
        f"--model-repository={model_repository}",
        f"--backend-directory={layout.backend_directory}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc_port}",
        *http_arguments(http_address),
        *_metrics_arguments(metrics_port),
        # All that goes through Triton is on the CPU, where this would be memory that nobody uses.
        "--pinned-memory-pool-byte-size=0",
        "--log-info=false",
        f"--exit-timeout-secs={STOP_GRACE_SECONDS}",
    ]


def is_harmless(line: str) -> bool:
    """Whether Triton says with this line of its log only that the machine has no GPU, which it needs not."""
    return "CudaDriverHelper has not been initialized" in line


def http_arguments(address: str | None) -> list[str]:
    """The arguments of tritonserver that open its HTTP endpoints at `host:port`, or close them."""
    if address is None:
        return ["--allow-http=false"]
    host, _, port = address.rpartition(":")
    return [
        f"--http-address={host.strip('[]')}",
        f"--http-port={port}",
        f"--http-thread-count={_HTTP_THREADS}",
    ]


def _status(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"
