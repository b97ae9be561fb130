"""Hosts and ports: how they are written, and the addresses of their sockets; standard library only."""

from __future__ import annotations

import socket
from typing import Any


def written(host: str, port: int) -> str:
    """`host:port`, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolved(host: str, port: int) -> tuple[int, Any]:
    """Family and address of a TCP socket. Raises OSError, also for what cannot be a name."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    return family, address
