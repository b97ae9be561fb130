"""One request to an HTTP server on a Unix socket, and its answer as it arrives."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, cast

import httptools

from shared.errors import TritonUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from runner.front.http import Header

_MOST_WAITING = 4 << 20  # bytes of an answer that its reader has not taken


class Exchange(asyncio.Protocol):
    """A connection for one request. `open` makes it; close it by `abort`, also in the middle."""

    def __init__(self) -> None:
        self.headers: list[Header] = []
        """Of the answer, with names in lower case."""
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._progress = asyncio.Event()
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._has_head = False
        self._complete = False
        self._problem: str | None = None

    @classmethod
    async def open(
        cls, socket: Path, method: str, target: str, headers: Iterable[Header] = (), body: bytes = b""
    ) -> Self:
        """Send a request. Raises TritonUnavailable when nobody listens."""
        loop = asyncio.get_running_loop()
        try:
            transport, exchange = await loop.create_unix_connection(cls, str(socket))
        except OSError:
            raise TritonUnavailable(reason="it is being started") from None
        lines = [f"{method} {target} HTTP/1.1\r\nhost: triton\r\nconnection: close".encode()]
        lines += [b"%b: %b" % header for header in headers]
        if method == "POST":
            lines.append(b"content-length: %d" % len(body))
        transport.write(b"\r\n".join([*lines, b"", body]))
        return exchange

    async def status(self) -> int:
        """Wait for the head of the answer. Raises TritonUnavailable."""
        while not self._has_head:
            await self._more()
        return int(self._parser.get_status_code())

    async def body(self) -> AsyncIterator[bytes]:
        """What has arrived, as often as there is something. Raises TritonUnavailable when it is cut."""
        while True:
            if self._pieces:
                pieces, self._pieces, self._waiting = self._pieces, [], 0
                if self._transport is not None:
                    self._transport.resume_reading()
                yield b"".join(pieces)
            elif self._complete:
                return
            else:
                await self._more()

    def abort(self) -> None:
        """Close the connection, whatever is under way: the reader, if any, learns that it was cut."""
        if self._transport is not None:
            self._transport.abort()
        self._fail("the connection was closed")

    async def _more(self) -> None:
        self._progress.clear()
        if self._problem is not None:
            raise TritonUnavailable(reason=self._problem)
        await self._progress.wait()

    def _fail(self, problem: str) -> None:
        if not self._complete:
            self._problem = self._problem or problem
        self._progress.set()

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail("its answer cannot be read")
            self.abort()

    def connection_lost(self, _problem: Exception | None) -> None:
        self._transport = None
        self._fail("the connection was closed")

    # --- the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers are not headers
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._has_head = True
        self._progress.set()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._waiting += len(piece)
        self._progress.set()
        if self._waiting > _MOST_WAITING and self._transport is not None:
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        self._complete = True
        self._progress.set()
