"""How a tritonserver is started."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runner.triton.address import Address
    from shared.layout import Layout

_STOP_GRACE_SECONDS = 5
# A thread that is behind by some 250 events loses those that follow: more threads are behind by less.
_HTTP_THREADS = 64
# What lets a client write files, or have memory of this machine read: for nobody.
_CLOSED = "shared-memory,trace,logging"


def tritonserver_command(
    layout: Layout, model_repository: Path, *, grpc: Address, metrics: Address, http: Address | None
) -> list[str]:
    """How a tritonserver is started, without `http` with its HTTP closed. Raises PartNotInstalled."""
    return [
        str(layout.tritonserver),
        f"--model-repository={model_repository}",
        f"--backend-directory={layout.backend_directory}",
        f"--grpc-address={_bracketed(grpc.host)}",
        f"--grpc-port={grpc.port}",
        f"--grpc-restricted-protocol={_CLOSED}:{_nobodys_key()}",
        *http_arguments(http),
        f"--metrics-port={metrics.port}",
        f"--metrics-address={metrics.host}",
        "--allow-gpu-metrics=false",
        # All that goes through Triton is on the CPU, where this would be memory that nobody uses.
        "--pinned-memory-pool-byte-size=0",
        "--log-info=false",
        f"--exit-timeout-secs={_STOP_GRACE_SECONDS}",
    ]


def is_harmless(line: str) -> bool:
    """Whether Triton says with this line of its log only that the machine has no GPU, which it needs not."""
    return "CudaDriverHelper has not been initialized" in line


def http_arguments(address: Address | None) -> list[str]:
    """The arguments of tritonserver that open its HTTP endpoints, or close them."""
    if address is None:
        return ["--allow-http=false"]
    return [
        f"--http-address={address.host}",
        f"--http-port={address.port}",
        f"--http-restricted-api={_CLOSED}:{_nobodys_key()}",
        f"--http-thread-count={_HTTP_THREADS}",
    ]


def _nobodys_key() -> str:
    """A header and its value, which are told to nobody."""
    return f"{secrets.token_hex(16)}={secrets.token_hex(16)}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
