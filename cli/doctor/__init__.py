"""`cog-triton doctor`: what this machine has and lacks. One module per check; `CHECKS` is their order.

To add a check, write a module with a `CHECK`, and add it below.
"""

from __future__ import annotations

from .check import Check, Finding, Severity
from .container_tool import CHECK as CONTAINER_TOOL
from .disk import CHECK as DISK
from .gpu import CHECK as GPU
from .memory import CHECK as MEMORY
from .nix import CHECK as NIX
from .parts import CHECK as PARTS
from .port import CHECK as PORT
from .shared_memory import CHECK as SHARED_MEMORY
from .sockets import CHECK as SOCKETS
from .system import CHECK as SYSTEM
from .tls import CHECK as TLS

__all__ = ["CHECKS", "Check", "Finding", "Severity"]

CHECKS: tuple[Check, ...] = (
    SYSTEM, PARTS, GPU, SHARED_MEMORY, MEMORY, DISK, SOCKETS, PORT, TLS, CONTAINER_TOOL, NIX,
)  # fmt: skip
