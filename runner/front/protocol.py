"""uvicorn's HTTP, with bounds on what clients may hold: connections, headers, time, unread answers."""

from __future__ import annotations

import fcntl
import resource
import sys
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from runner.front.http import CLIENT, Client, refusal
from runner.front.statuses import retry_after, status_of
from runner.front.writes import GatheringTransport, Writes
from shared.errors import HeadersTooLarge, RequestMalformed, RequestTooSlow, TooManyConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn._types import ASGI3Application

    from runner.front.http import Message, Send
    from shared.errors import CogTritonError

_OTHER_DESCRIPTORS = 256  # libraries, logs, Triton, webhooks
REFUSED_POLITELY = 256  # beyond these, clients are not even told
_PHRASES = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one server."""

    connections: int
    header_bytes: int = 1 << 16
    header_seconds: float = 10
    body_seconds: float = 60
    stall_seconds: float = 60
    """How long a client may read nothing while its buffer is full."""


def raise_descriptor_limit(connections: int) -> int:
    """Allow this process as many open files as possible; return how many connections that leaves, at most
    these.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, hard - _OTHER_DESCRIPTORS - REFUSED_POLITELY))


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounded` makes the class that has its `bounds`, and what counts its refusals."""

    bounds: ClassVar[Bounds]
    count: ClassVar[Callable[[CogTritonError], object]]
    writes: ClassVar[Writes]
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _in_head = True
    _refused = False
    _data = b""
    _got_on = False
    """Whether `_data` held the end of a request, or part of a body."""
    _answered: RequestResponseCycle | None = None
    """The request that is being answered, or was last; those behind it wait in `pipeline`."""
    _overhead = 0
    """Bytes since there was either: of a head, or of what may surround a body, such as trailers."""
    _fields = 0
    """Bytes of the headers, or of the trailers: one read may hold all of them, and the end of the request."""

    def connection_made(self, transport: Any) -> None:
        self._gathering = GatheringTransport(transport, self.writes)
        super().connection_made(cast("asyncio.Transport", self._gathering))
        self._client = Client()
        over = len(self.connections) - self.bounds.connections
        if over > REFUSED_POLITELY:
            transport.abort()
            return
        self._refused = over > 0
        self._await_part("head", self.bounds.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        self.resume_writing()
        # uvicorn tells the one that came last.
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
        super().connection_lost(exc)
        self._client.leave()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refused:
            self._gathering.has_read_all = False
            self._refuse(TooManyConnections(limit=self.bounds.connections))
            return
        self._data, self._got_on = data, False
        super().data_received(data)
        if self._deadline is not None and not self._got_on:
            self._overhead += len(data)
            if self._overhead > self.bounds.header_bytes:
                self._refuse(HeadersTooLarge(limit=self.bounds.header_bytes))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CLIENT: {"client": self._client}}
        self._in_head, self._overhead, self._gathering.has_read_all = True, 0, False
        self._fields = 0
        self._await_part("head", self.bounds.header_seconds)

    def on_url(self, url: bytes) -> None:
        self._bound(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._bound(len(name) + len(value))
        if self._in_head:  # trailers are not headers
            super().on_header(name, value)

    def _bound(self, more: int) -> None:
        self._fields += more
        if self._fields > self.bounds.header_bytes:
            self._refuse(HeadersTooLarge(limit=self.bounds.header_bytes))
            raise ValueError  # to the parser, which stops

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # to `_unsupported_upgrade_warning`
        super().on_headers_complete()  # raises for an address that is none
        self._in_head, self._fields = False, 0
        if self.scope["http_version"] == "1.0":
            # uvicorn has no other place at which an answer can be changed for old clients.
            self.cycle.send = _without_chunks(self.cycle)  # type: ignore[method-assign,assignment]
        self._await_part("body", self.bounds.body_seconds)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._got_on, self._overhead = True, 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._got_on, self._overhead, self._gathering.has_read_all = True, 0, True
        self._in_time()
        super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Answer clients that offer another protocol in this one, as Java's client offers HTTP/2 with every
        request.

        The parser stops at an offer, before the body: so the request is read again without it.
        """
        (end_of_head,) = cast("httptools.HttpParserUpgrade", sys.exc_info()[1]).args
        kept = [header for header in self.headers if header[0] != b"upgrade"]
        if len(kept) == len(self.headers):  # CONNECT
            self._refuse(RequestMalformed())
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in kept]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join([*lines, b"", self._data[end_of_head:]]))

    def send_400_response(self, _msg: str) -> None:
        self._refuse(RequestMalformed())

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stall is None:
            self._watch(self._not_taken())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _watch(self, waiting: int) -> None:
        """So many bytes wait for the client: look later whether it has taken some."""
        self._stall = self.loop.call_later(self.bounds.stall_seconds, self._look, waiting)

    def _look(self, before: int) -> None:
        waiting = self._not_taken()
        if waiting < before:
            self._watch(waiting)
        else:
            self.transport.abort()

    def _not_taken(self) -> int:
        """Bytes that the client's machine has not acknowledged, here and in the kernel: this frees a third of
        its buffer (1.4 MB) before it takes more from here.
        """
        in_kernel = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        return self.transport.get_write_buffer_size() + int.from_bytes(in_kernel, sys.byteorder)

    def _await_part(self, part: str, seconds: float) -> None:
        self._in_time()
        self._deadline = self.loop.call_later(seconds, self._late, part, seconds)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, part: str, seconds: float) -> None:
        self._deadline = None
        before = self._answered
        if (
            before is not None
            and not before.response_complete
            and (self._in_head or before is not self.cycle)
        ):
            self._await_part(part, seconds)  # it would have to wait for the answer before it, which goes on
            return
        self._refuse(RequestTooSlow(part=part, seconds=seconds))

    def _refuse(self, error: CogTritonError) -> None:
        """Answer without a handler, and close: to a handler that waits for a body, the client has left."""
        self._in_time()
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if self.pipeline or (cycle is not None and cycle.response_started and not cycle.response_complete):
            self.transport.close()  # nothing can be said in the middle of an answer
            return
        in_body = not self._in_head and not self._gathering.has_read_all
        if in_body and cycle.response_complete:
            self.transport.close()  # the request has had its answer, without the rest of its body
            return
        type(self).count(error)
        status = status_of(error)
        body = orjson.dumps(refusal(error))
        head = (
            b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n"
        )
        lines = [head % (status, _PHRASES[status], len(body))]
        lines += [b"%b: %b\r\n" % header for header in retry_after(error)]
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.transport.close()


def _without_chunks(cycle: RequestResponseCycle) -> Send:
    """How to answer HTTP/1.0, which has no chunks: an answer of unknown length ends with its connection."""
    send, of_unknown_length = cycle.send, False

    async def send_as_it_is(message: Message) -> None:
        nonlocal of_unknown_length
        if message["type"] == "http.response.start":
            of_unknown_length = all(name != b"content-length" for name, _ in message["headers"])
            cycle.chunked_encoding = False if of_unknown_length else None
        elif of_unknown_length:
            cycle.expected_content_length = len(message["body"])
        await send(message)  # type: ignore[arg-type] # uvicorn has a type for each kind of message

    return send_as_it_is


def bounded(bounds: Bounds, count: Callable[[CogTritonError], object]) -> type[BoundedProtocol]:
    """The class of connections with these bounds; `count` gets each error that one is refused with."""
    own = {"bounds": bounds, "count": staticmethod(count), "writes": Writes()}
    return type("Connection", (BoundedProtocol,), own)
