"""uvicorn around an ASGI application."""

from __future__ import annotations

import asyncio
import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

import uvicorn

from runner.front.protocol import REFUSED_POLITELY, BoundedProtocol, Bounds, bounded, raise_descriptor_limit
from runner.setting_files import content_of
from shared.cog.server import BACKLOG
from shared.errors import SettingInvalid
from shared.tls import why_unusable

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from runner.front.app import App
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


class _Context(ssl.SSLContext):
    """TLS for a number of connections, including those in the handshake: no protocol knows these yet."""

    most: int

    def __init__(self, _protocol: int) -> None:
        self._open: WeakSet[ssl.SSLObject] = WeakSet()

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Begin a handshake. Raises SSLError, which ends the connection, if there are too many."""
        if len(self._open) >= self.most:
            raise ssl.SSLError("too many connections")
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        self._open.add(made)
        return made


def _context(certificate: Path, key: Path, connections: int) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.most = connections + REFUSED_POLITELY
    return context


class _Server(uvicorn.Server):
    """Also limits how long a handshake takes, for which uvicorn has no setting."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        config = self.config
        if config.ssl is None or sockets is None:
            await super().startup(sockets)
            return
        connection = cast("type[BoundedProtocol]", config.http_protocol_class)
        make = partial(connection, config, self.server_state, self.lifespan.state)
        self.servers = [
            await asyncio.get_running_loop().create_server(
                make,
                sock=listener,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=connection.bounds.header_seconds,
            )
            for listener in sockets
        ]
        self.started = True


def make_server(
    app: App, max_connections: int, grace: float, tls: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """The server of the application; when it ends, answers in progress have `grace` seconds."""
    connections = raise_descriptor_limit(max_connections)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    config = uvicorn.Config(
        app,
        http=bounded(Bounds(connections), app.count),
        loop="uvloop",
        ws="none",
        proxy_headers=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_context_factory=None if tls is None else lambda *_: _context(*tls, connections),
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    return _Server(config)


def acceptors(listener: socket.socket) -> list[socket.socket]:
    """The listener several times over, for `uvicorn.Server.serve`.

    From each, uvloop accepts one connection per pass of its loop. With one, a burst of 500 that arrives while
    1,000 streams are served (30 ms a pass) would wait up to 15 s before being noticed. Three times as many as
    begin in a pass (runner/front/turns.py): cancels get past those who wait there.
    """
    return [listener, *(listener.dup() for _ in range(_ACCEPTED_IN_ONE_PASS - 1))]
