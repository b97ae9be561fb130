"""urllib3's connections, through the proxies that the environment names, with a limit on slow answers."""

from __future__ import annotations

import logging
import socket
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import connection, connectionpool
from urllib3.util import make_headers, parse_url

from . import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.response import HTTPResponse

# It logs every URL with its query, which may hold a signature.
logging.getLogger("urllib3").setLevel(logging.ERROR)


def connections_to(scheme: str, host: str, count: int) -> urllib3.PoolManager:
    """Keeps that many connections open."""
    proxies = getproxies()
    proxy = proxies.get(scheme, proxies.get("all"))
    if not proxy or proxy_bypass(host):
        pools = urllib3.PoolManager(maxsize=count)
    else:
        auth = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
        pools = urllib3.ProxyManager(proxy, maxsize=count, proxy_headers=headers)
    pools.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
    return pools


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
