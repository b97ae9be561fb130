"""An archive that is read while it is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from urllib3 import exceptions
from urllib3.util import parse_url

from shared.errors import WeightsUnreachable

from .parts import CONNECTIONS, in_order
from .remote import Remote, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

Progress = Callable[[int, int | None], None]
"""Gets the bytes that have arrived so far, and how many there will be where that is known."""


class Arriving:
    """A readable stream of the chunks, which tells `progress` what has been read.

    `size` is how many bytes there will be, where that is known.
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
def download(url: str, progress: Progress) -> Iterator[Arriving]:
    """The body of `url`, over many connections where the server has ranges. Raises E4200."""
    try:
        with closing(Remote(url, CONNECTIONS)) as remote:
            chunks = in_order(remote, remote.size) if remote.has_ranges and remote.size else remote.whole()
            with closing(chunks):
                yield Arriving(chunks, remote.size, progress)
    except exceptions.HTTPError as error:
        raise WeightsUnreachable(source=public_url(url), reason=reason(error)) from error


def public_url(url: str) -> str:
    """`url` without what may be secret in it: the name and password, the query, the fragment."""
    try:
        return parse_url(url)._replace(auth=None, query=None, fragment=None).url
    except exceptions.LocationParseError:
        return url.partition("://")[0] + "://..."
