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
    awaits_answer = False
    """Whether a request that has come whole is still being answered."""
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

    def parsed(self, count: int) -> None:
        """So many bytes have been parsed: as many as there were, or up to the end of a request."""
        raise NotImplementedError

    @property
    def unparsed(self) -> int:
        """How many bytes wait."""
        return len(self._received) - self._parsed

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._received, self._parsed = b"", 0  # whatever refers to this object may do so for a while

    def data_received(self, data: bytes) -> None:
        if self._received:
            kept = max(self._parsed - _OVERLAP, 0)  # a blank line may have begun there
            self._received = self._received[kept:] + data
            self._parsed -= kept
        else:
            self._received = data
        if self._parses_soon or self.awaits_answer:
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
        self.awaits_answer = not self.cycle.response_complete
        super().on_message_complete()
        if not self._is_full:
            self.flow.resume_reading()  # a large body paused it, and the client's end would not be seen

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.awaits_answer = False
        if self._received:
            self._hold_reading()
            self._parse_soon()

    def _parse_soon(self) -> None:
        """Parse in the next pass of the event loop, when the other connections have had their turn."""
        if not self._parses_soon:
            self._parses_soon = True
            self.loop.call_soon(self._parse_now)

    def _parse_now(self) -> None:
        self._parses_soon = False
        if not self.transport.is_closing():
            self._parse()

    def _parse(self) -> None:
        """Parse what has come, up to the end of a request, and not too much in one pass."""
        self._unset_keepalive_if_required()
        begin = self._parsed
        limit = begin + _IN_ONE_PASS
        while self._parsed < len(self._received):
            if self._body_left:
                piece = self._received[self._parsed : self._parsed + self._body_left]
                self._body_left -= len(piece)
                limit += len(piece)
            else:
                found = self._received.find(_BLANK_LINE, max(self._parsed - _OVERLAP, 0), limit)
                piece = self._received[self._parsed : limit if found < 0 else found + len(_BLANK_LINE)]
            self._parsed += len(piece)
            self._feed(piece)
            if self.awaits_answer or self._parsed == len(self._received) or self.transport.is_closing():
                break
            if self._parsed >= limit:
                self._parse_soon()
                break
        self.parsed(self._parsed - begin)
        if self._parsed == len(self._received):  # a long answer need not hold its request
            self._received = b"" if self._is_whole else self._received[-_OVERLAP:]
            self._parsed = len(self._received)
        if self._received:
            self._hold_reading()

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
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as failure:
            self._refuse_failed(failure)
            return
        else:
            return
        self._parse_without_offer()

    def _refuse_failed(self, failure: httptools.HttpParserError) -> None:
        if isinstance(failure.__context__, CogTritonError):
            self.refuse(failure.__context__)
        elif "Content-Length" in str(failure):
            self.refuse(BodyLengthInvalid())
        else:
            self.refuse(RequestMalformed())

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
        self._feed(b"\r\n".join([*lines, b"", b""]))  # which ends in no further offer
