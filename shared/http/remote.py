"""A file behind an http(s) URL, of which many threads can ask for parts."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from urllib3 import exceptions

from . import limits
from .client import Client, body
from .failures import Refused, TooSlow

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from urllib3.response import BaseHTTPResponse

CHUNK = 1 << 20

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.ASCII)
_LENGTH = re.compile(r"\d{1,18}", re.ASCII)


class Remote:
    """The file at `url`, as it is now: when it changes later, that is an error.

    What fails is tried several times, from where it broke off; then urllib3's HTTPError is raised.
    """

    def __init__(
        self, url: str, *, connections: int, attempts: int, authorization: str | None = None
    ) -> None:
        self._client = Client(url, connections=connections, attempts=attempts, authorization=authorization)
        self._open: set[BaseHTTPResponse] = set()
        self._validator: tuple[str, str] | None = None
        first = self._client.attempt(self._client.get, {"Range": "bytes=0-0"})
        if first.status == 416:  # it is empty, or its server has no ranges
            first.close()
            first = self._client.attempt(self._client.get, {})
        self.has_ranges = first.status == 206
        if self.has_ranges:
            with first:
                self._validator = _validator(first)
                self.size: int | None = _content_range(first)[2]
        else:
            length = first.headers.get("Content-Length", "")
            self.size = int(length) if _LENGTH.fullmatch(length) else None
            self._open.add(first)

    def close(self) -> None:
        """End what threads still wait for."""
        self._client.closed.set()
        for response in self._open.copy():
            with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
                response.shutdown()
        self._client.close()

    def whole(self) -> Generator[bytes]:
        """The file from a server without ranges; once."""
        with self._open.pop() as response:
            yield from body(response)

    def fill(self, view: memoryview, start: int, arrived: Callable[[int], None]) -> None:
        """Fill `view` with the bytes from `start` on; `arrived` gets how many more there are each time, and
        returns at once: what it takes would pass for the server's time.
        """
        done = counted = 0
        began = time.monotonic()
        while done < len(view):
            waited = time.monotonic() - began
            if waited >= limits.PATIENCE_SECONDS:
                if done - counted < limits.SLOWEST * waited:
                    raise TooSlow
                began, counted = began + waited, done
            done += self._client.attempt(self._fill_some, view[done:], start + done, arrived)

    def _fill_some(self, view: memoryview, start: int, arrived: Callable[[int], None]) -> int:
        """What one connection brings, at least a byte; return how many."""
        done = told = 0
        try:
            with self._range(start, start + len(view)) as response:
                for chunk in body(response):
                    wanted = min(len(chunk), len(view) - done)
                    view[done : done + wanted] = chunk[:wanted]
                    done += wanted
                    if done - told >= CHUNK:
                        arrived(done - told)
                        told = done
                    if done == len(view):
                        break
        except TooSlow:
            # It was so from the beginning: one of the attempts in a row that bring nothing.
            if done < limits.SLOWEST * limits.PACE_SECONDS:
                raise
        except exceptions.HTTPError:
            if not done or self._client.closed.is_set():
                raise
        if not done:
            raise Refused("nothing arrived", passing=True)
        if done > told:
            arrived(done - told)
        return done

    @contextmanager
    def _range(self, start: int, stop: int) -> Iterator[BaseHTTPResponse]:
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        # A weak one must not be sent there (RFC 9110, 13.1.5); it is compared all the same.
        if self._validator and not self._validator[1].startswith("W/"):
            headers["If-Range"] = self._validator[1]
        with self._client.get(headers) as response:
            self._open.add(response)
            try:
                if self._client.closed.is_set():
                    raise Refused("it is no longer wanted")
                if response.status != 206 or _validator(response) != self._validator:
                    raise Refused("it changed while it was being fetched")
                first, last, size = _content_range(response)
                if size != self.size:
                    raise Refused("it changed while it was being fetched")
                if first != start or last >= stop:
                    raise Refused("the bytes that arrived are not those asked for", passing=True)
                yield response
            finally:
                self._open.discard(response)


def _validator(response: BaseHTTPResponse) -> tuple[str, str] | None:
    for name in ("ETag", "Last-Modified"):
        if value := response.headers.get(name):
            return name, value
    return None


def _content_range(response: BaseHTTPResponse) -> tuple[int, int, int]:
    """The first and the last byte that arrive, and how many there are (RFC 9110, 14.4)."""
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if not found:
        raise Refused("the server does not say which bytes it sends")
    first, last, size = map(int, found.groups())
    if not first <= last < size:
        raise Refused(f"the server says that it sends bytes {first} to {last} of {size}")
    return first, last, size
