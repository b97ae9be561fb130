"""Asking for one address: redirects, passwords, attempts."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, ParamSpec, TypeVar
from urllib.parse import urljoin

import tenacity
import urllib3
from urllib3 import exceptions
from urllib3.util import parse_url

from . import limits
from .connections import basic, connections_to, in_time
from .failures import Refused, TooSlow, is_passing
from .pace import paced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from urllib3.response import BaseHTTPResponse
    from urllib3.util import Url

P = ParamSpec("P")
T = TypeVar("T")

_READ = 256 << 10  # small enough that the memory is used again
_PORTS = {"http": 80, "https": 443}
_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED_STATUS = frozenset({401, 403, 404, 410})


class Client:
    """Many threads may share one. Everything here raises urllib3's HTTPError."""

    def __init__(
        self, url: str, *, connections: int = 1, attempts: int = 1, authorization: str | None = None
    ) -> None:
        first = _parsed(url)
        self._first = self._location = first.url  # and where redirects led
        self._origin = _origin(first)
        self._authorization = {"Authorization": basic(first.auth)} if first.auth else {}
        if authorization is not None:
            self._authorization = {"Authorization": authorization}
        self._connections = connections
        self._pools: dict[tuple[str, str], urllib3.PoolManager] = {}
        self.closed = threading.Event()
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_passing),
            stop=tenacity.stop_after_attempt(attempts) | tenacity.stop_when_event_set(self.closed),
            wait=limits.WAIT,
            sleep=tenacity.sleep_using_event(self.closed),
            reraise=True,
        )

    def close(self) -> None:
        """End waiting for another attempt, and the connections that nobody uses."""
        self.closed.set()
        for pool in self._pools.copy().values():
            pool.clear()

    def attempt(self, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `ask` returns, which is called again while another attempt may succeed."""
        return self._retrying(ask, *args, **kwargs)

    def get(self, headers: dict[str, str]) -> BaseHTTPResponse:
        """The answer, with status 200 or 206 (or 416, for a range), of one attempt. After a failure,
        redirects are followed from the first URL again: where they led may have been signed for a short time
        only.
        """
        began_at = self._location
        try:
            response, location = self._followed(began_at, headers)
            if response.status not in ((200, 206, 416) if "Range" in headers else (200, 206)):
                response.close()
                passing = response.status in _PASSING_STATUS or (
                    began_at != self._first and response.status in _EXPIRED_STATUS
                )
                raise Refused(f"{_parsed(location).host} answered {_named(response.status)}", passing=passing)
        except exceptions.HTTPError:
            self._location = self._first
            raise
        self._location = location
        return response

    def _followed(self, location: str, headers: dict[str, str]) -> tuple[BaseHTTPResponse, str]:
        """The answer that redirects from `location` lead to, and where that is."""
        for _ in range(limits.REDIRECTS + 1):
            response = self._asked(_parsed(location), headers)
            target = response.get_redirect_location()
            if not target:
                return response, location
            response.close()
            location = _redirected(location, target)
        raise Refused(f"it redirects more than {limits.REDIRECTS} times")

    def _asked(self, url: Url, headers: dict[str, str]) -> BaseHTTPResponse:
        # Compressed on the way, the bytes would not be those of the file.
        headers = {**headers, "Accept-Encoding": "identity"}
        if _origin(url) == self._origin:
            headers |= self._authorization
        key = (str(url.scheme), str(url.host))
        # Threads that meet here for the first time all get the same one.
        pools = self._pools.get(key) or self._pools.setdefault(key, connections_to(*key, self._connections))
        return pools.request(
            "GET",
            url._replace(auth=None).url,
            headers=headers,
            preload_content=False,
            decode_content=False,
            redirect=False,
            retries=False,
            timeout=urllib3.Timeout(connect=limits.CONNECT_SECONDS, read=limits.SILENCE_SECONDS),
        )


def body(response: BaseHTTPResponse) -> Iterator[bytes]:
    """The bytes of an answer as they come."""
    return paced(iter(partial(_next, response), b""))


def _next(response: BaseHTTPResponse) -> bytes:
    limit: AbstractContextManager[None] = in_time(response.shutdown) if response.chunked else nullcontext()
    try:
        with limit:
            return response.read1(_READ)
    except TimeoutError:
        raise TooSlow from None


def _parsed(url: str) -> Url:
    """Raises LocationParseError."""
    parts = parse_url(url)
    if parts.scheme not in _PORTS or not parts.host:
        raise exceptions.LocationParseError(url)
    return parts


def _redirected(url: str, target: str) -> str:
    try:
        location = urljoin(url, target)
        scheme = _parsed(location).scheme
    except ValueError:  # LocationParseError is one too
        raise Refused("it redirects to something that is not a valid http:// or https:// URL") from None
    if url.startswith("https:") and scheme == "http":
        raise Refused("it redirects from https:// to http://, where anybody could change it")
    return location


def _origin(url: Url) -> tuple[str | None, str | None, int]:
    return url.scheme, url.host, url.port or _PORTS[str(url.scheme)]


def _named(status: int) -> str:
    """The server's own words could be anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
