"""How a tritonserver is started."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from runner.triton.address import Address
    from shared.layout import Layout

_STOP_GRACE_SECONDS = 5
# A thread that is some 250 events behind loses those that follow: with more threads, each is less behind.
_HTTP_THREADS = 64
# What would let a client write files, or have this machine's memory read: open to nobody.
_CLOSED = "shared-memory,trace,logging"


def tritonserver_command(
    layout: Layout, model_repository: Path, *, grpc: Address, metrics: Address, http: Address | None
) -> list[str]:
    """How to start a tritonserver; without `http`, its HTTP is closed. Raises PartNotInstalled."""
    return [
        str(layout.tritonserver),
        f"--model-repository={model_repository}",
        f"--backend-directory={layout.backend_directory}",
        f"--grpc-address={_bracketed(grpc.host)}",
        f"--grpc-port={grpc.port}",
        f"--grpc-restricted-protocol={_CLOSED}:{_nobodys_key()}",
        *http_arguments(http),
        f"--metrics-port={metrics.port}",
        f"--metrics-address={_of_libevhtp(metrics.host)}",
        "--allow-gpu-metrics=false",
        # All data in Triton is on the CPU: this would reserve memory that nobody uses.
        "--pinned-memory-pool-byte-size=0",
        "--log-info=false",
        f"--exit-timeout-secs={_STOP_GRACE_SECONDS}",
    ]


def is_harmless(line: str) -> bool:
    """Whether this line of Triton's log only says that the machine has no GPU, which Triton does not need."""
    return "CudaDriverHelper has not been initialized" in line


def http_arguments(address: Address | None) -> list[str]:
    """The arguments of tritonserver that open its HTTP endpoints, or close them."""
    if address is None:
        return ["--allow-http=false"]
    return [
        f"--http-address={_of_libevhtp(address.host)}",
        f"--http-port={address.port}",
        f"--http-restricted-api={_CLOSED}:{_nobodys_key()}",
        f"--http-thread-count={_HTTP_THREADS}",
    ]


def _nobodys_key() -> str:
    """A header and its value, which nobody is told."""
    return f"{secrets.token_hex(16)}={secrets.token_hex(16)}"


def _of_libevhtp(host: str) -> str:
    """As Triton's HTTP library takes it: without the word, an IPv6 address becomes 255.255.255.255."""
    return f"ipv6:{host}" if ":" in host else host


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
