"""uvicorn around an ASGI application."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

import uvicorn

from runner.front.protocol import Bounds, bounded, raise_descriptor_limit
from runner.setting_files import content_of
from shared.cog.server import BACKLOG
from shared.errors import SettingInvalid

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
        why = getattr(problem, "strerror", None) or problem
        if isinstance(problem, ssl.SSLError):
            why = "they are not a certificate and its private key in PEM"
        reason = f"it cannot be used with TLS_KEY={key}: {why}"
        raise SettingInvalid(setting="TLS_CERTIFICATE", value=str(certificate), reason=reason) from None
    return certificate, key


def _no_password() -> str:
    raise ValueError("the key has a password")


def make_server(
    app: App, max_connections: int, grace: float, tls: tuple[Path, Path] | None = None
) -> uvicorn.Server:
    """The server of the application; when it ends, answers in progress have `grace` seconds."""
    certificate, key = tls or (None, None)
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
        ssl_certfile=certificate,
        ssl_keyfile=key,
        backlog=BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    return uvicorn.Server(config)


def acceptors(listener: socket.socket) -> list[socket.socket]:
    """The listener several times over, for `uvicorn.Server.serve`.

    From each, uvloop accepts one connection per pass of its loop. With one, a burst of 500 that arrives while
    1,000 streams are served (30 ms a pass) would wait up to 15 s before being noticed. Three times as many as
    begin in a pass (runner/front/turns.py): cancels get past those who wait there.
    """
    return [listener, *(listener.dup() for _ in range(_ACCEPTED_IN_ONE_PASS - 1))]
