"""An archive that is read while it is downloaded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import httpx2
import tenacity

from shared.errors import WeightsUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.artifact import Readable

Progress = Callable[[int, int | None], None]
"""Gets the bytes that have arrived so far, and how many there will be where that is known."""

_TIMEOUT = httpx2.Timeout(60, connect=10)  # seconds; the first one holds for each wait for more data
_PASSING_STATUS = frozenset({429, 502, 503, 504})

# It logs every URL with its query, which may hold a signature.
logging.getLogger("httpx2").setLevel(logging.WARNING)


class Arriving:
    """A readable stream of the chunks, which tells `progress` what has been read."""

    def __init__(self, chunks: Iterator[bytes], total: int | None, progress: Progress) -> None:
        self._chunks = chunks
        self._total = total
        self._progress = progress
        self._arrived = 0
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        chunk = self._rest or self._next()
        self._rest = chunk[size:]
        return chunk[:size]

    def _next(self) -> bytes:
        chunk = next(self._chunks, b"")
        self._arrived += len(chunk)
        self._progress(self._arrived, self._total)
        return chunk


@contextmanager
def download(url: str, progress: Progress) -> Iterator[Readable]:
    """The body of `url`. Connecting is tried several times; what breaks later raises E4200."""
    try:
        with httpx2.Client(follow_redirects=True, timeout=_TIMEOUT) as client:
            response = _respond(client, url)
            with closing(response):
                length = response.headers.get("content-length", "")
                total = int(length) if length.isdecimal() else None
                yield Arriving(response.iter_bytes(), total, progress)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise WeightsUnreachable(source=public_url(url), reason=_reason(error)) from error


def public_url(url: str) -> str:
    """`url` without what may be secret in it: the name and password, the query, the fragment."""
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        return url.partition("://")[0] + "://..."
    return str(parsed.copy_with(username=None, password=None, query=None, fragment=None))


def _is_passing(error: BaseException) -> bool:
    """Whether the server may be there a moment later."""
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in _PASSING_STATUS
    return isinstance(error, httpx2.TransportError) and not isinstance(error, httpx2.UnsupportedProtocol)


@tenacity.retry(
    retry=tenacity.retry_if_exception(_is_passing),
    stop=tenacity.stop_after_attempt(5),
    wait=tenacity.wait_exponential(multiplier=0.5, max=8),
    reraise=True,
)
def _respond(client: httpx2.Client, url: str) -> httpx2.Response:
    # Compressed on the way, the length would not be that of the archive.
    request = client.build_request("GET", url, headers={"Accept-Encoding": "identity"})
    response = client.send(request, stream=True)
    try:
        return response.raise_for_status()
    except httpx2.HTTPStatusError:
        response.close()
        raise


def _reason(error: httpx2.HTTPError | httpx2.InvalidURL) -> str:
    """What went wrong, without the URL: a redirect may have given it a signature."""
    if isinstance(error, httpx2.InvalidURL):
        return "it is not a valid URL"
    host = error.request.url.host
    if isinstance(error, httpx2.HTTPStatusError):
        return f"{host} answered {error.response.status_code} {error.response.reason_phrase}"
    if isinstance(error, httpx2.TimeoutException):
        return f"{host} sent nothing for too long"
    return f"{host}: {error}"
