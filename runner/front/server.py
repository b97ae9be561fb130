"""uvicorn around an ASGI application."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING, cast

import uvicorn

from runner.front.descriptors import share_descriptors
from runner.front.handshakes import TlsServer, server_context
from runner.front.protocol import Bounds, bounded
from runner.setting_files import content_of
from shared.cog.server import BACKLOG
from shared.errors import SettingInvalid
from shared.tls import why_unusable

if TYPE_CHECKING:
    import asyncio
    import socket
    from pathlib import Path

    from runner.front.app import App
    from runner.front.protocol import BoundedProtocol
    from runner.settings import Settings

_KEEP_ALIVE_SECONDS = 60
_ACCEPTED_IN_ONE_PASS = 12


def tls_files(settings: Settings) -> tuple[Path, Path] | None:
    """Certificate and private key; None for plain HTTP. Raises SettingInvalid for unusable ones."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        if certificate is not key:
            names = ("TLS_CERTIFICATE", "TLS_KEY")
            missing, other = names if certificate is None else reversed(names)
            raise SettingInvalid(setting=missing, value=None, reason=f"{other} needs it")
        return None
    content_of(certificate, "TLS_CERTIFICATE")
    content_of(key, "TLS_KEY")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as problem:
        if isinstance(problem, ssl.SSLError):
            why: object = why_unusable(problem)
        else:
            why = getattr(problem, "strerror", None) or problem
        reason = f"it cannot be used with TLS_KEY={key}: {why}"
        raise SettingInvalid(setting="TLS_CERTIFICATE", value=str(certificate), reason=reason) from None
    return certificate, key


def _no_password() -> str:
    raise ValueError("the key has a password")


class _Server(uvicorn.Server):
    """Also bounds the handshakes of TLS, for which uvicorn has no setting."""

    def __init__(self, config: uvicorn.Config, most_handshakes: int) -> None:
        super().__init__(config)
        self._most_handshakes = most_handshakes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        config = self.config
        if config.ssl is None or sockets is None:
            await super().startup(sockets)
            return
        connection = cast("type[BoundedProtocol]", config.http_protocol_class)
        make_protocol = partial(connection, config, self.server_state, self.lifespan.state)
        seconds = connection.bounds.header_seconds
        server = TlsServer(sockets[0], make_protocol, config.ssl, self._most_handshakes, seconds)
        self.servers = [cast("asyncio.Server", server)]
        self.started = True


def make_server(
    app: App, max_connections: int, grace: float, tls: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """The server of the application; when it ends, answers in progress have `grace` seconds."""
    shares = share_descriptors(max_connections)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=bounded(Bounds(shares.connections, shares.refused), app.count),
        loop="uvloop",
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_context_factory=None if tls is None else lambda *_: server_context(*tls),
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    return _Server(config, shares.handshakes)


def acceptors(listener: socket.socket) -> list[socket.socket]:
    """The listener several times over, for `uvicorn.Server.serve`.

    From each, uvloop accepts one connection per pass of its loop. With one, a burst of 500 that arrives while
    1,000 streams are served (30 ms a pass) would wait up to 15 s before being noticed. Three times as many as
    begin in a pass (runner/front/turns.py): cancels get past those who wait there.
    """
    return [listener, *(listener.dup() for _ in range(_ACCEPTED_IN_ONE_PASS - 1))]
