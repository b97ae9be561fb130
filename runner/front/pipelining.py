"""uvicorn's HTTP, one request at a time: the next is parsed once the answer before it is complete.

llhttp parses whatever it gets, and httptools cannot pause it. So it gets pieces, none of which goes on behind
the end of a request: they end at a blank line or, in a body of a known length, at its end.
"""

from __future__ import annotations

from typing import ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shared.errors import BodyLengthInvalid, CogTritonError, HostHeaderInvalid, RequestMalformed

_BLANK_LINE = b"\r\n\r\n"
_OVERLAP = len(_BLANK_LINE) - 1
_IN_ONE_PASS = 1 << 15
"""Bytes of one connection parsed in one pass of the event loop; bodies of a known length cost little."""
_LENGTH_DIGITS = 19  # llhttp takes any number of leading zeros, int() doesn't


class SerialProtocol(HttpToolsProtocol):
    """One connection. Later requests wait unparsed; beyond a bound, reading pauses, and the client waits."""

    waiting_bytes: ClassVar[int] = 1 << 16
    """Reading pauses when more than this waits."""
    _received = b""
    _parsed = 0
    """How much of `_received` the parser has had."""
    _body_left = 0
    """How much is missing of a body of a known length."""
    _is_whole = True
    """Whether the last request has come to its end; also before the first."""
    _parses_soon = False
    _is_full = False
    """Whether reading is paused because too much waits."""

    def refuse(self, error: CogTritonError) -> None:
        """Answer what cannot be read as a request, and close."""
        raise NotImplementedError

    @property
    def awaits_answer(self) -> bool:
        """Whether a request that has come whole is still being answered."""
        return self._is_whole and self.cycle is not None and not self.cycle.response_complete

    @property
    def unparsed(self) -> int:
        """How many bytes wait."""
        return len(self._received) - self._parsed

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._received, self._parsed = b"", 0  # whatever refers to this object may do so for a while

    def data_received(self, data: bytes) -> None:
        kept = max(self._parsed - _OVERLAP, 0)  # a blank line may have begun there
        self._received = self._received[kept:] + data
        self._parsed -= kept
        if self._parses_soon:
            self._hold_reading()
        else:
            self._parse()

    def on_message_begin(self) -> None:
        if self.awaits_answer:
            raise RequestMalformed  # no piece should lead here
        super().on_message_begin()
        self._is_whole = False

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():  # else `_parse_without_offer` follows
            self.head_complete()

    def head_complete(self) -> None:
        """Start to answer. Raises BodyLengthInvalid and HostHeaderInvalid, with which `_feed` refuses."""
        hosts = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                if len(value) > _LENGTH_DIGITS:
                    raise BodyLengthInvalid
                self._body_left = int(value)
        if hosts > 1 or (not hosts and self.parser.get_http_version() != "1.0"):
            raise HostHeaderInvalid(count=hosts)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self.request_complete()

    def request_complete(self) -> None:
        """The request has come to its end."""
        self._is_whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._hold_reading()
        if self.unparsed:
            self._parse_soon()

    def _parse_soon(self) -> None:
        """Parse in the next pass of the event loop, when the other connections have had their turn."""
        if not self._parses_soon:
            self._parses_soon = True
            self.loop.call_soon(self._parse)

    def _parse(self) -> None:
        """Parse what has come, up to the end of a request, and not too much in one pass."""
        self._parses_soon = False
        limit = self._parsed + _IN_ONE_PASS
        while self.unparsed and not self.awaits_answer and not self.transport.is_closing():
            if self._parsed >= limit:
                self._parse_soon()
                break
            self._unset_keepalive_if_required()
            if self._body_left:
                piece = self._received[self._parsed : self._parsed + self._body_left]
                self._body_left -= len(piece)
                limit += len(piece)
            else:
                piece = self._received[self._parsed : self._end_of_piece(limit)]
            self._parsed += len(piece)
            self._feed(piece)
        if not self.unparsed:  # a long answer need not hold its request
            self._received = self._received[-_OVERLAP:]
            self._parsed = len(self._received)
        self._hold_reading()

    def _end_of_piece(self, limit: int) -> int:
        begin = max(self._parsed - _OVERLAP, 0)
        found = self._received.find(_BLANK_LINE, begin, limit)
        return limit if found < 0 else found + len(_BLANK_LINE)

    def _hold_reading(self) -> None:
        """Pause reading while too much waits. What closes is read, and ignored."""
        if self.transport.is_closing():
            return
        was_full, self._is_full = self._is_full, self.unparsed > self.waiting_bytes
        if self._is_full:
            self.flow.pause_reading()
        elif was_full:
            self.flow.resume_reading()

    def _feed(self, piece: bytes) -> None:
        """Have it parsed, and refuse what is wrong."""
        try:
            if not self._parses(piece):
                self._parse_without_offer()
        except httptools.HttpParserError as failure:
            if isinstance(failure.__context__, CogTritonError):
                self.refuse(failure.__context__)
            elif "Content-Length" in str(failure):
                self.refuse(BodyLengthInvalid())
            else:
                self.refuse(RequestMalformed())

    def _parses(self, piece: bytes) -> bool:
        """False if the parser stopped behind a head, since that offers another protocol."""
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            return False
        return True

    def _parse_without_offer(self) -> None:
        """Parse the head again without its offer: the parser would skip the body.

        Java's client offers HTTP/2 with every request.
        """
        kept = [header for header in self.headers if header[0] != b"upgrade"]
        if len(kept) == len(self.headers):  # CONNECT
            self.refuse(RequestMalformed())
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in kept]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))
