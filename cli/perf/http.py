"""Requests over kept HTTP connections, cheap enough for 50 thousand events a second on one core.

httptools takes the messages apart, as it does for uvicorn. A connection serves one request at a time.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, cast

import httptools
import httpx2

from shared.sizes import readable
from shared.tls import in_causes, trusting, why_refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol
    from urllib.parse import SplitResult

    class Reader(Protocol):
        """The receiver of an answer."""

        def head(self, status: int, *, is_stream: bool) -> None:
            """The answer begins."""

        def body(self, data: bytes, now: float) -> None:
            """More of it, read at `now`."""

        def end(self, now: float, *, whole: bool) -> None:
            """Nothing more will come; not `whole`: the connection ended before the answer did."""


MAX_ANSWER = 10_000_000
"""Bytes of the answer to a single question."""


async def get(url: str, headers: Mapping[str, str], seconds: float) -> tuple[int, bytes]:
    """A single question: the status, and the whole answer. Raises OSError, whose text says why there is none.

    It is asked as directly as the load asks, whatever proxies the environment names.
    """
    # Who asks decides about the Authorization: httpx2 would make another one of a user in the address.
    place = httpx2.URL(url).copy_with(username="", password="")
    content = bytearray()
    try:
        async with (
            # Over everything: a server that drips is in time with each byte.
            asyncio.timeout(seconds),
            httpx2.AsyncClient(timeout=None, trust_env=False, verify=_trusted()) as client,
            # Not compressed, so that what has been counted is all there is.
            client.stream("GET", place, headers={"Accept-Encoding": "identity", **headers}) as answer,
        ):
            async for piece in answer.aiter_raw():
                content += piece
                if len(content) > MAX_ANSWER:
                    raise OSError(f"its answer has more than {readable(MAX_ANSWER)}")
            return answer.status_code, bytes(content)
    except TimeoutError:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None
    except httpx2.HTTPError as error:
        raise OSError(why(error)) from error


_trusted = cache(trusting)  # to read all certificates takes longer than a question


def why(error: BaseException) -> str:
    """Why there is no connection, without the numbers that Python puts into its texts."""
    if problem := in_causes(error):
        return why_refused(problem)
    # httpx2 says only that all attempts failed; what caused that has the reason.
    if isinstance(error, httpx2.ConnectError):
        while cause := error.__cause__ or error.__context__:
            error = cause
    return re.sub(r"\[Errno -?\d+\] ", "", str(error)) or "it did not answer"


@dataclass(frozen=True)
class Message:
    """What is sent."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded(self, host: str) -> bytes:
        """Its bytes in HTTP/1.1."""
        lines = [f"{self.method} {self.path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class Connection(asyncio.Protocol):
    """One connection; `done` of the current request is set when its answer has ended."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._done: asyncio.Future[None] | None = None
        self._now = 0.0
        self._is_stream = self._is_informational = False
        self.heard = False
        """Whether the current request has got any answer yet."""
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, data: bytes, reader: Reader) -> asyncio.Future[None]:
        """Send a message; the reader gets the answer."""
        assert self._transport is not None
        self._reader, self._parser, self.heard = reader, httptools.HttpResponseParser(self), False
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._done

    def close(self) -> None:
        """End it; the reader is told immediately."""
        self.is_open, self._now = False, time.perf_counter()
        if self._transport is not None:
            self._transport.abort()
        self._end(whole=False)

    def data_received(self, data: bytes) -> None:
        self._now, self.heard = time.perf_counter(), True
        if self._parser is None:
            self.close()  # nobody has asked
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.close()

    def connection_lost(self, _: Exception | None) -> None:
        self.is_open = False
        # An answer without a length ends with its connection: the reader knows whether it was complete.
        self._now = time.perf_counter()
        self._end(whole=False)

    # What httptools calls.

    def on_message_begin(self) -> None:
        self._is_stream = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"content-type":
            self._is_stream = value.startswith(b"text/event-stream")

    def on_headers_complete(self) -> None:
        if self._parser is None:
            return  # more than was asked for
        status = self._parser.get_status_code()
        # Such as 103 Early Hints: the answer is still to come. After 101 nothing does that is HTTP.
        self._is_informational = status < 200 and status != 101
        if self._reader is not None and not self._is_informational:
            self._reader.head(status, is_stream=self._is_stream)

    def on_body(self, body: bytes) -> None:
        if self._reader is not None:
            self._reader.body(body, self._now)

    def on_message_complete(self) -> None:
        if self._is_informational:
            return
        if self._parser is not None and not self._parser.should_keep_alive():
            self.is_open = False
            if self._transport is not None:
                self._transport.close()
        self._end(whole=True)

    def _end(self, *, whole: bool) -> None:
        reader, self._reader, self._parser = self._reader, None, None
        if reader is not None:
            reader.end(self._now, whole=whole)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class Connections:
    """Connections to one server: free ones are used again."""

    def __init__(self, url: SplitResult) -> None:
        self._host, self._tls = url.hostname or "", url.scheme == "https"
        self._port = url.port or (443 if self._tls else 80)
        self.authority = url.netloc.rpartition("@")[2]
        self._free: list[Connection] = []

    async def get(self) -> tuple[Connection, bool]:
        """One, and whether it is new. Raises OSError."""
        while self._free:
            connection = self._free.pop()
            if connection.is_open:
                return connection, False
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection, self._host, self._port, ssl=_trusted() if self._tls else None
        )
        return connection, True

    def give_back(self, connection: Connection) -> None:
        """It is free, if it is still usable."""
        if connection.is_open:
            self._free.append(connection)

    def close(self) -> None:
        """End those that are free."""
        for connection in self._free:
            connection.close()
        self._free.clear()
