"""How a tritonserver is started, and where it listens."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from shared.layout import Layout

_STOP_GRACE_SECONDS = 5
_GRPC_PORT = 1  # Triton adds it to the path of its socket
HTTP_THREADS = 64
"""A thread that is some 250 events behind loses those that follow: with more threads, each is less behind."""


class TritonSockets(NamedTuple):
    """The Unix sockets of one Triton, in a directory that only its owner can enter.

    It listens nowhere else: with shared memory, traces and log settings, Triton's protocols let a client read
    and write what the runner can, and crafted requests crash it (runner/front/triton).
    """

    directory: Path

    @property
    def http(self) -> Path:
        """Its HTTP."""
        return self.directory / "triton-http"

    @property
    def grpc(self) -> Path:
        """Its gRPC."""
        return self.directory / f"triton-grpc:{_GRPC_PORT}"

    @property
    def metrics(self) -> Path:
        """GET /metrics; the last that it opens, after it has loaded all models."""
        return self.directory / "triton-metrics"

    @property
    def feed(self) -> Path:
        """The bridge's own (runner/protocol/feed.py)."""
        return self.directory / "feed"

    def remove(self) -> None:
        """Remove what a killed Triton left behind: another one refuses to start on a path that exists."""
        for path in (self.http, self.grpc, self.metrics):
            with suppress(OSError):  # if the folder cannot be written, Triton says so
                path.unlink()


def tritonserver_command(
    layout: Layout, model_repository: Path, sockets: TritonSockets, *, http: bool, grpc: bool
) -> list[str]:
    """How to start a tritonserver. `http`, `grpc`: whether that is wanted. Raises PartNotInstalled."""
    return [
        str(layout.tritonserver),
        f"--model-repository={model_repository}",
        f"--backend-directory={layout.backend_directory}",
        *socket_arguments(sockets, http=http, grpc=grpc),
        "--allow-gpu-metrics=false",
        # All data in Triton is on the CPU: this would reserve memory that nobody uses.
        "--pinned-memory-pool-byte-size=0",
        "--log-info=false",
        f"--exit-timeout-secs={_STOP_GRACE_SECONDS}",
    ]


def socket_arguments(sockets: TritonSockets, *, http: bool, grpc: bool) -> list[str]:
    """The arguments of tritonserver that say where it listens."""
    arguments = [f"--metrics-address=unix:{sockets.metrics}"]
    if http:
        arguments += [f"--http-address=unix:{sockets.http}", f"--http-thread-count={HTTP_THREADS}"]
    else:
        arguments.append("--allow-http=false")
    if grpc:
        path = str(sockets.grpc).removesuffix(f":{_GRPC_PORT}")
        arguments += [f"--grpc-address=unix:{path}", f"--grpc-port={_GRPC_PORT}"]
    else:
        arguments.append("--allow-grpc=false")
    return arguments


def is_harmless(line: str) -> bool:
    """Whether this line of Triton's log only says what we know: there is no GPU, or a socket is not TCP's."""
    return "CudaDriverHelper has not been initialized" in line or "NODELAY NOT SUPPORTED" in line
