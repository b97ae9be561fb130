"""`cog-triton inspect`: the manifest of an engine, wherever it is."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from shared.artifact import read_manifest
from shared.errors import WeightsNotFound, WeightsUnreachable
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from shared.artifact import Manifest, Readable

_FIRST_RANGE = 1 << 16  # bytes; the manifest of an engine of a few files is smaller
_GROWTH = 4
_TIMEOUTS = httpx2.Timeout(30.0, connect=10.0)  # s; the first holds for each wait for more data


def manifest_of(source: str) -> Manifest | None:
    """The manifest of the engine.tar at `source`, a path or an http(s) URL; None where it has none.

    Of what a URL names only the beginning is fetched. Raises E4100, E4102, E4200 and E4201.
    """
    opened = _remote(source) if source.startswith(("http://", "https://")) else _local(Path(source))
    with opened as stream:
        return read_manifest(stream)


@contextmanager
def _local(path: Path) -> Iterator[Readable]:
    try:
        stream = path.open("rb")
    except OSError as missing:
        raise WeightsNotFound(source=path) from missing
    with stream:
        yield stream


@contextmanager
def _remote(url: str) -> Iterator[Readable]:
    try:
        with (
            httpx2.Client(timeout=_TIMEOUTS, follow_redirects=True) as client,
            closing(_ranges(client, url)) as chunks,
        ):
            yield _Chunks(chunks)
    except httpx2.HTTPStatusError as error:
        reason = f"the server answered {error.response.status_code}"
        raise WeightsUnreachable(source=public_address(url), reason=reason) from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = f"the transfer broke ({type(error).__name__})"
        raise WeightsUnreachable(source=public_address(url), reason=reason) from None


def _ranges(client: httpx2.Client, url: str) -> Generator[bytes]:
    """The bytes at `url`, asked for range by range as they are needed (RFC 9110, 14). A server that knows no
    ranges sends all; then the connection is closed when enough has come.
    """
    start, size = 0, _FIRST_RANGE
    while True:
        headers = {"Range": f"bytes={start}-{start + size - 1}", "Accept-Encoding": "identity"}
        with client.stream("GET", url, headers=headers) as response:
            if response.status_code == httpx2.codes.RANGE_NOT_SATISFIABLE:
                return
            response.raise_for_status()
            received = 0
            for chunk in response.iter_bytes():
                received += len(chunk)
                yield chunk
            if received < size or response.status_code != httpx2.codes.PARTIAL_CONTENT:
                return
        start, size = start + size, size * _GROWTH


class _Chunks:
    """Chunks as a stream that can be read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        chunk = self._rest or next(self._chunks, b"")
        self._rest = chunk[size:]
        return chunk[:size]
