"""How a tritonserver is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from shared.layout import Layout

_STOP_GRACE_SECONDS = 5
# A thread that is behind by some 250 events loses those that follow: more threads are behind by less.
_HTTP_THREADS = 64


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
        f"--metrics-port={metrics_port}",
        "--metrics-address=127.0.0.1",
        "--allow-gpu-metrics=false",
        # All that goes through Triton is on the CPU, where this would be memory that nobody uses.
        "--pinned-memory-pool-byte-size=0",
        "--log-info=false",
        f"--exit-timeout-secs={_STOP_GRACE_SECONDS}",
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
