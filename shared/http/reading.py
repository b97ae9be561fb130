"""A file that is read while it arrives."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from . import limits
from .client import Client, body
from .failures import Refused, TooSlow, translated
from .parts import CONNECTIONS, in_order
from .remote import Remote

if TYPE_CHECKING:
    from collections.abc import Iterator

Progress = Callable[[int, int | None], None]
"""Gets how many bytes have arrived so far, and how many there will be, if known."""


class Arriving:
    """A readable stream of the chunks, which reports to `progress` what has been read.

    `size` is how many bytes there will be, if known.
    """

    def __init__(self, chunks: Iterator[bytes | memoryview], size: int | None, progress: Progress) -> None:
        self.size = size
        self._chunks = chunks
        self._progress = progress
        self._arrived = 0
        self._rest = memoryview(b"")

    def read(self, size: int, /) -> memoryview:
        """Up to `size` bytes; none at the end."""
        chunk = self._rest or self._next()
        self._rest = chunk[size:]
        return chunk[:size]

    def _next(self) -> memoryview:
        chunk = next(self._chunks, b"")
        self._arrived += len(chunk)
        self._progress(self._arrived, self.size)
        return memoryview(chunk)


@contextmanager
def download(
    url: str, progress: Progress, *, attempts: int = limits.ATTEMPTS, authorization: str | None = None
) -> Iterator[Arriving]:
    """The body of `url`, over many connections where the server has ranges. `authorization` is a header for
    its server, and for none that it redirects to. Raises `Unreachable`, as does reading it.
    """
    with (
        translated(),
        closing(
            Remote(url, connections=CONNECTIONS, attempts=attempts, authorization=authorization)
        ) as remote,
    ):
        chunks = in_order(remote, remote.size) if remote.has_ranges and remote.size else remote.whole()
        with closing(chunks):
            yield Arriving(chunks, remote.size, progress)


def read(url: str, limit: int, seconds: float) -> bytes:
    """The first `limit` bytes of a small file, which has `seconds` to arrive. Raises `Unreachable`."""
    deadline = time.monotonic() + seconds
    content = bytearray()
    with translated(), closing(Client(url)) as client, client.get({}) as response:
        if response.status != 200:
            raise Refused("only a part of it arrived")
        for chunk in body(response):
            content += chunk
            if time.monotonic() > deadline:
                raise TooSlow
            if len(content) >= limit:
                break
    return bytes(content[:limit])
