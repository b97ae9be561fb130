"""The listening socket and uvicorn around an ASGI application."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import uvicorn

from runner.front.protocol import Bounds, bounded, raise_descriptor_limit
from shared.errors import PortInUse

if TYPE_CHECKING:
    from runner.front.app import App

_BACKLOG = 4096
_KEEP_ALIVE_SECONDS = 60


def listen(host: str, port: int) -> socket.socket:
    """Raises E4003 when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise PortInUse(port=port) from None
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def make_server(app: App, max_connections: int, grace: float) -> uvicorn.Server:
    """What serves the application; at its end those who are answered have `grace` seconds."""
    connections = raise_descriptor_limit(max_connections)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=bounded(Bounds(connections)),
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    return uvicorn.Server(config)
