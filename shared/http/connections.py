"""urllib3's connections, through the proxies that the environment names, with a limit on slow answers."""

from __future__ import annotations

import logging
import socket
import threading
from base64 import b64encode
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import connection, connectionpool, exceptions
from urllib3.util import parse_url

from . import limits
from .failures import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.response import HTTPResponse

# It logs every URL with its query, which may hold a signature.
logging.getLogger("urllib3").setLevel(logging.ERROR)


def connections_to(scheme: str, host: str, count: int) -> urllib3.PoolManager:
    """Keeps that many connections open."""
    variable = proxy_variable(scheme, host)
    if variable is None:
        pools = urllib3.PoolManager(maxsize=count)
    else:
        proxy = getproxies()[variable]
        try:
            auth = parse_url(proxy).auth
            headers = {"Proxy-Authorization": basic(auth)} if auth else None
            pools = urllib3.ProxyManager(proxy, maxsize=count, proxy_headers=headers)
        except exceptions.LocationParseError:
            raise Refused("the proxy in the environment is not a valid URL") from None
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return pools


def proxy_variable(scheme: str, host: str) -> str | None:
    """Which of the environment's proxies is used for `host`, as `getproxies` names them; None for none."""
    proxies = getproxies()
    variable = scheme if scheme in proxies else "all"
    return None if not proxies.get(variable) or proxy_bypass(host) else variable


def basic(auth: str) -> str:
    """The header for `user:password` of a URL, whose bytes are sent as they are."""
    return f"Basic {b64encode(unquote_to_bytes(auth)).decode()}"


@contextmanager
def in_time(end: Callable[[], object]) -> Iterator[None]:
    """When this lasts too long, call `end`, which ends a connection, and raise TimeoutError.

    A socket's time-out starts again with each byte: headers, and what is between the chunks of a body, could
    be dripped for days within one call of http.client.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
            end()

    timer = threading.Timer(limits.ANSWER_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if late.is_set():
            raise TimeoutError


class _Connection(connection.HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override] # as urllib3's own
        # Not `self.sock.shutdown`: a TLS socket would continue in plain text.
        with in_time(partial(socket.socket.shutdown, self.sock, socket.SHUT_RDWR)):
            return super().getresponse()


class _SecureConnection(_Connection, connection.HTTPSConnection):
    pass


class _Pool(connectionpool.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(connectionpool.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection
