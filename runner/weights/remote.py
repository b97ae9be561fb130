"""A file behind an http(s) URL, of which many threads can ask for parts."""

from __future__ import annotations

import logging
import re
import threading
from contextlib import contextmanager, suppress
from ssl import SSLCertVerificationError
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import tenacity
import urllib3
from urllib3 import exceptions
from urllib3.util import make_headers, parse_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from urllib3.response import BaseHTTPResponse

CHUNK = 1 << 20
_READ = 256 << 10  # small enough that the memory is used again
ATTEMPTS = 5  # in a row, without a byte
WAIT = tenacity.wait_exponential_jitter(multiplier=0.5, max=8)  # seconds
TIMEOUT = urllib3.Timeout(connect=10, read=30)  # seconds; the second one holds for each wait for more data

_REDIRECTS = urllib3.Retry(total=None, connect=False, read=False, redirect=10, status=0, other=0)
_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_EXPIRED_STATUS = frozenset({401, 403, 404, 410})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")

# It logs every URL with its query, which may hold a signature.
logging.getLogger("urllib3").setLevel(logging.ERROR)


class Refused(exceptions.HTTPError):
    """The server answered, but not with what was asked for."""

    def __init__(self, reason: str, *, passing: bool) -> None:
        super().__init__(reason)
        self.passing = passing


class Remote:
    """The file at `url`, as it is now: when it changes later, that is an error.

    What fails is tried several times, from where it was cut; then urllib3's HTTPError is raised.
    """

    def __init__(self, url: str, connections: int) -> None:
        self._url = url
        self._location = url  # where redirects led to
        if auth := parse_url(url).auth:
            self._authorization = make_headers(basic_auth=unquote(auth))
        else:
            self._authorization = {}
        self._pool = _pool(url, connections)
        self._closed = threading.Event()
        self._open: set[BaseHTTPResponse] = set()
        self._validator: tuple[str, str] | None = None
        self._retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_is_passing),
            stop=tenacity.stop_after_attempt(ATTEMPTS) | tenacity.stop_when_event_set(self._closed),
            wait=WAIT,
            sleep=tenacity.sleep_using_event(self._closed),
            reraise=True,
        )
        first = self._retrying(self._get, {"Range": "bytes=0-0"})
        self.has_ranges = first.status == 206
        if self.has_ranges:
            self._validator = _validator(first)
            self.size: int | None = _content_range(first)[2]
            first.close()
        else:
            length = first.headers.get("Content-Length", "")
            self.size = int(length) if length.isdecimal() else None
            self._open.add(first)

    def close(self) -> None:
        """End what threads still wait for."""
        self._closed.set()
        for response in self._open.copy():
            with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
                response.shutdown()
        self._pool.clear()

    def whole(self) -> Generator[bytes]:
        """The file from a server that has no ranges; once."""
        with self._open.pop() as response:
            yield from response.stream(CHUNK)

    def fill(self, view: memoryview, start: int, arrived: Callable[[int], None]) -> None:
        """Fill `view` with the bytes from `start` on; `arrived` gets how many more there are, each time."""
        done = 0
        while done < len(view):
            done += self._retrying(self._fill_some, view[done:], start + done, arrived)

    def _fill_some(self, view: memoryview, start: int, arrived: Callable[[int], None]) -> int:
        """What one connection brings, at least a byte; return how many."""
        done = told = 0
        try:
            with self._range(start, start + len(view)) as response:
                while chunk := response.read(min(_READ, len(view) - done)):
                    view[done : done + len(chunk)] = chunk
                    done += len(chunk)
                    if done - told >= CHUNK:
                        arrived(done - told)
                        told = done
        except exceptions.HTTPError:
            if not done or self._closed.is_set():
                raise
        if not done:
            raise Refused("nothing came", passing=True)
        if done > told:
            arrived(done - told)
        return done

    @contextmanager
    def _range(self, start: int, stop: int) -> Iterator[BaseHTTPResponse]:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        # A weak one must not stand there (RFC 9110, 13.1.5); it is compared all the same.
        if self._validator and not self._validator[1].startswith("W/"):
            headers["If-Range"] = self._validator[1]
        with self._get(headers) as response:
            self._open.add(response)
            try:
                if self._closed.is_set():
                    raise Refused("it is not wanted any more", passing=False)
                if response.status != 206 or _validator(response) != self._validator:
                    raise Refused("it changed while it was being fetched", passing=False)
                first, last, size = _content_range(response)
                if size != self.size:
                    raise Refused("it changed while it was being fetched", passing=False)
                if first != start or last >= stop:
                    raise Refused("other bytes came than were asked for", passing=True)
                yield response
            finally:
                self._open.discard(response)

    def _get(self, headers: dict[str, str]) -> BaseHTTPResponse:
        """The answer with status 200 or 206. After a failure redirects are followed from the first URL again:
        where they led to may have been signed for a short time only.
        """
        location = self._location
        # Compressed on the way, the bytes would not be those of the file.
        headers = {**headers, "Accept-Encoding": "identity"}
        if urlsplit(location).netloc == urlsplit(self._url).netloc:
            headers |= self._authorization
        try:
            response = self._pool.request(
                "GET",
                location,
                headers=headers,
                preload_content=False,
                decode_content=False,
                retries=_REDIRECTS,
                timeout=TIMEOUT,
            )
            found = _redirected(location, response)
            if response.status not in (200, 206):
                response.close()
                passing = response.status in _PASSING_STATUS or (
                    location != self._url and response.status in _EXPIRED_STATUS
                )
                host = urlsplit(found).hostname
                raise Refused(f"{host} answered {response.status} {response.reason}", passing=passing)
        except exceptions.MaxRetryError as error:
            self._location = self._url
            raise error.reason or error from None
        except exceptions.HTTPError:
            self._location = self._url
            raise
        self._location = found
        return response


def reason(error: exceptions.HTTPError) -> str:
    """What went wrong, without an address: a redirect may have given it a signature."""
    match error:
        case exceptions.URLSchemeUnknown():
            return f"{error.scheme}:// is not one of http:// and https://"
        case exceptions.LocationValueError():
            return "it is not a valid URL"
        case exceptions.NewConnectionError():
            return str(error).partition("): ")[2]
        case exceptions.TimeoutError():
            return "the server sent nothing for too long"
        case _:
            return str(error.args[0] if error.args else error).rstrip(".")


def _is_passing(error: BaseException) -> bool:
    """Whether another attempt may succeed."""
    match error:
        case Refused():
            return error.passing
        case exceptions.SSLError():
            return not isinstance(error.args[0], SSLCertVerificationError)
        case _:
            return isinstance(
                error, exceptions.ProxyError | exceptions.ProtocolError | exceptions.TimeoutError
            )


def _pool(url: str, connections: int) -> urllib3.PoolManager:
    """Through the proxy that the environment names, if any."""
    parts = parse_url(url)
    if not parts.host:
        raise exceptions.LocationValueError("no host")
    proxies = getproxies()
    proxy = proxies.get(parts.scheme or "", proxies.get("all"))
    if not proxy or proxy_bypass(parts.host):
        return urllib3.PoolManager(maxsize=connections)
    auth = parse_url(proxy).auth
    headers = make_headers(proxy_basic_auth=unquote(auth)) if auth else None
    return urllib3.ProxyManager(proxy, maxsize=connections, proxy_headers=headers)


def _redirected(url: str, response: BaseHTTPResponse) -> str:
    for step in response.retries.history if response.retries else ():
        url = urljoin(url, step.redirect_location or "")
    return url


def _validator(response: BaseHTTPResponse) -> tuple[str, str] | None:
    for name in ("ETag", "Last-Modified"):
        if value := response.headers.get(name):
            return name, value
    return None


def _content_range(response: BaseHTTPResponse) -> tuple[int, int, int]:
    """The first and the last byte that come, and how many there are (RFC 9110, 14.4)."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not found:
        raise Refused("the server does not say which bytes it sends", passing=False)
    first, last, size = map(int, found.groups())
    return first, last, size
