"""uvicorn's HTTP, with bounds on what clients may hold: connections, headers, time, unread answers."""

from __future__ import annotations

import fcntl
import sys
import termios
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import orjson

from runner.front.events import COMMENT
from runner.front.http import CLIENT, Client, refusal
from runner.front.pipelining import SerialProtocol
from runner.front.presence import Presence
from runner.front.statuses import retry_after, status_of
from runner.front.writes import GatheringTransport, Writes
from shared.errors import HeadersTooLarge, RequestTooSlow, TooManyConnections

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    from runner.front.http import Message, Send
    from shared.errors import CogTritonError

_COMMENT_CHUNK = b"%x\r\n%b\r\n" % (len(COMMENT), COMMENT)
_FIELD_OVERHEAD = 32  # bytes that each header counts beyond its own, as in HTTP/2
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
    refused: int = 128
    """Connections beyond those that are told so; further ones are closed without a word."""
    header_bytes: int = 1 << 16
    header_seconds: float = 10
    body_seconds: float = 60
    stall_seconds: float = 60
    """How long a client may read nothing while its buffer is full."""


class BoundedProtocol(SerialProtocol):
    """One connection. `bounded` makes the class that has its `bounds`, and what counts its refusals."""

    bounds: ClassVar[Bounds]
    count: ClassVar[Callable[[CogTritonError], object]]
    writes: ClassVar[Writes]
    _presence: Presence | None = None
    _has_ended = False
    """Whether the client sends no more."""
    _deadline: asyncio.TimerHandle | None = None
    _awaited = ""
    """The part of a request that must come before the deadline."""
    _stall: asyncio.TimerHandle | None = None
    _in_head = True
    _refused = False
    _got_on = False
    """Whether what was parsed last had the end of a request, or part of a body."""
    _overhead = 0
    """Bytes since there was either: of a head, or of what may surround a body, such as trailers."""
    _fields = 0
    """Bytes of the headers, or of the trailers: one read may hold all of them, and the end of the request."""

    def connection_made(self, transport: Any) -> None:
        self._gathering = GatheringTransport(transport, self.writes)
        super().connection_made(cast("asyncio.Transport", self._gathering))
        self._client = Client(self._comment)
        over = len(self.connections) - self.bounds.connections
        if over > self.bounds.refused:
            transport.abort()
            return
        self._refused = over > 0
        self._await_part("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        if self._presence is not None:
            self._presence.stop()
            self._presence = None
        self.resume_writing()
        super().connection_lost(exc)
        self._client.leave()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._refused:
            self._gathering.has_read_all = False
            self.refuse(TooManyConnections(limit=self.bounds.connections))
            return
        if self.awaits_answer:
            self._gathering.has_read_all = False
        super().data_received(data)

    def parsed(self, count: int) -> None:
        got_on, self._got_on = self._got_on, False
        if (self._is_whole and got_on) or self.transport.is_closing():
            return
        if self._has_ended and not self.unparsed:
            self.transport.close()  # the rest will not come
            return
        part = "head" if self._in_head or self._is_whole else "body"
        if self._awaited != part:
            self._await_part(part)
        if not got_on:
            self._overhead += count
            if self._overhead > self.bounds.header_bytes:
                self.refuse(HeadersTooLarge(limit=self.bounds.header_bytes))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._client.takes_comments = False
        self.scope["extensions"] = {CLIENT: {"client": self._client}}
        self._in_head, self._overhead, self._gathering.has_read_all = True, 0, False
        self._fields, self._awaited = 0, ""

    def on_url(self, url: bytes) -> None:
        self._fields += len(url)
        if self._fields > self.bounds.header_bytes:
            raise HeadersTooLarge(limit=self.bounds.header_bytes)  # to the parser, which stops
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value) + _FIELD_OVERHEAD
        if self._fields > self.bounds.header_bytes:
            raise HeadersTooLarge(limit=self.bounds.header_bytes)
        if self._in_head:  # trailers are not headers
            super().on_header(name, value)

    def head_complete(self) -> None:
        super().head_complete()  # raises for an address that is none
        self._in_head, self._fields = False, 0
        if self.scope["http_version"] == "1.0":
            # uvicorn has no other place at which an answer can be changed for old clients.
            self.cycle.send = _without_chunks(self.cycle)  # type: ignore[method-assign,assignment]

    def on_body(self, body: bytes) -> None:
        self._got_on, self._overhead = True, 0
        super().on_body(body)

    def request_complete(self) -> None:
        self._got_on, self._overhead, self._gathering.has_read_all = True, 0, not self.unparsed
        self._in_time()
        super().request_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._has_ended and not self.unparsed:
            self.transport.close()

    def eof_received(self) -> bool:  # type: ignore[override] # uvicorn never stays
        """The client sends no more: it gets its answers, unless it has gone altogether.

        Over TLS, uvloop ends the connection in any case.
        """
        wants_more = self.unparsed or (self.awaits_answer and self._takes_probes)
        if self.scheme == "https" or self.transport.is_closing() or not wants_more:
            self._gathering.send()
            return False
        self._has_ended = True
        self._watch_presence()
        return True

    def _hold_reading(self) -> None:
        super()._hold_reading()
        if self._is_full and not self.transport.is_closing():
            self._watch_presence()  # nobody reads, so nobody notices its end
        elif self._presence is not None and not self._has_ended:
            self._presence.stop()

    def _watch_presence(self) -> None:
        if self._presence is None:
            descriptor = self.transport.get_extra_info("socket").fileno()
            self._presence = Presence(self.loop, descriptor, self._probe, self.transport.abort)
        self._presence.watch()

    @property
    def _takes_probes(self) -> bool:
        """Whether it would show that the client has gone: HTTP/1.0 has no interim answers."""
        return self.cycle.response_started or self.scope["http_version"] != "1.0"

    def _probe(self) -> None:
        """Send what a client ignores, if the answer has a place for that."""
        cycle = self.cycle
        if not (self.awaits_answer and self._takes_probes):
            return
        if not cycle.response_started:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        else:
            self._comment()

    def _comment(self) -> None:
        """Send one, if the answer takes comments and the client is not behind anyway."""
        cycle = self.cycle
        if self.awaits_answer and self._client.takes_comments and not self.flow.write_paused:
            self.transport.write(_COMMENT_CHUNK if cycle.chunked_encoding else COMMENT)

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

    def _await_part(self, part: str) -> None:
        seconds = self.bounds.header_seconds if part == "head" else self.bounds.body_seconds
        self._in_time()
        self._awaited = part
        self._deadline = self.loop.call_later(seconds, self._late, part, seconds)

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline, self._awaited = None, ""

    def _late(self, part: str, seconds: float) -> None:
        self._deadline = None
        self.refuse(RequestTooSlow(part=part, seconds=seconds))

    def refuse(self, error: CogTritonError) -> None:
        """Answer without a handler, and close: to a handler that waits for a body, the client has left."""
        self._in_time()
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is not None and cycle.response_started and not cycle.response_complete:
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
