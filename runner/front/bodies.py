"""Bodies of requests, which are JSON: bounded while they arrive, and parsed where that delays nobody."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from runner.fair_queue import FairQueue, Full, Shares
from runner.front.parse_process import REFUSED, UNREADABLE
from runner.front.turns import Turns
from runner.limited_process import LimitedProcess, NotStarted
from shared.errors import (
    BodiesTooLarge,
    BodyNotParsed,
    CogTritonError,
    ContentEncodingNotSupported,
    ContentTypeWrong,
    Overloaded,
    ShuttingDown,
    TooManyValues,
)
from shared.validation import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.front.http import Request
    from runner.prediction.admission import Admission

_Parsed = TypeVar("_Parsed")

MAX_VALUES = 1 << 21
"""Brackets, braces, commas and colons in a body: a million token ids, or the text of as many tokens."""
_HERE_VALUES = 1 << 13  # parsed and checked within some 5 ms
_HERE_BYTES = 1 << 19
_FREE_BYTES = 1 << 16  # of each body: what is small is never refused because others are large
RECEIVED_BYTES = 1 << 29
"""Of all bodies that are being received; more if some may be larger."""
_PIECE_BYTES = 1 << 18  # the most that is read of a connection at once
_PIECES_IN_ONE_PASS = 4  # of bodies of several
_PARSED_AT_ONCE = 1 << 20  # bytes in the pipe
_MAX_WAITING = 4096
_SECONDS = 10.0
_MAX_SHOWN = 80


class Bodies:
    """Reads the bodies of one server. For one event loop."""

    def __init__(
        self,
        admission: Admission,
        largest: int,
        refused: Callable[[CogTritonError], object] = lambda _: None,
    ) -> None:
        """`largest`: how many bytes one may have; `refused` gets the error of each that has no place."""
        self._admission = admission
        self._refused = refused
        self._turns = Turns()
        self._pieces = Turns(_PIECES_IN_ONE_PASS)
        self._received = Shares(max(RECEIVED_BYTES, 4 * largest))
        self._queue = FairQueue(_PARSED_AT_ONCE, most=_MAX_WAITING, room=4 * self._received.limit)
        self._process = LimitedProcess("runner.front.parse_process", seconds=_SECONDS)

    async def read(
        self,
        request: Request,
        parse: Callable[[bytes], _Parsed],
        *,
        place: bool = True,
        wait: bool = True,
    ) -> _Parsed:
        """What `parse`, which can be pickled, makes of the body.

        Bodies are parsed a few at a time, and large ones in another process: orjson holds the interpreter's
        lock. With `place`, the request has one before that. Without `wait`, it has none if it would have to
        wait: then its predictor waits.

        Raises ContentTypeWrong, ContentEncodingNotSupported, BodyTooLarge, TooManyValues, BodiesTooLarge,
        Overloaded, KeyLimitReached, ShuttingDown, BodyNotParsed, and what `parse` raises.
        """
        _check_json(request)
        counted = Counted(self._received, request)
        try:
            body = await request.body(counted.add, partial(self._before_more, counted))
            with request.while_connected():
                await self._turns.take()
                if place:
                    await self._enter(request, wait=wait)
                if len(body) <= _HERE_BYTES and counted.values <= _HERE_VALUES:
                    return parse(body)
                return await self._parsed_elsewhere(request.sender, parse, body)
        finally:
            counted.give_back()

    async def close(self) -> None:
        """End what it holds."""
        self._queue.close(ShuttingDown)
        await self._process.close(ShuttingDown)

    async def _before_more(self, counted: Counted) -> None:
        counted.expect(_PIECE_BYTES)  # the connection holds the next piece until its turn
        await self._pieces.take()

    async def _enter(self, request: Request, *, wait: bool) -> None:
        try:
            request.place = self._admission.enter_now(request.key)
            if request.place is None and wait:
                request.place = await self._admission.enter(request.key)
        except CogTritonError as error:
            self._refused(error)
            raise

    async def _parsed_elsewhere(self, sender: str, parse: Callable[[bytes], _Parsed], body: bytes) -> _Parsed:
        try:
            ended = await self._queue.enter(sender, len(body))
        except Full as full:
            what = "bodies are waiting to be parsed"
            raise Overloaded(limit=full.limit, what=what, fix="add runners") from None
        try:
            answer = await self._process.ask(ended, pickle.dumps(parse), body)
        except TimeoutError:
            raise BodyNotParsed(reason=f"that takes more than {_SECONDS:g} s") from None
        except EOFError:
            raise BodyNotParsed(reason="its process has died of it") from None
        except NotStarted as problem:
            raise BodyNotParsed(reason=str(problem)) from None
        if answer == UNREADABLE:
            raise BodyNotParsed(reason="that takes too much memory")
        content = pickle.loads(memoryview(answer)[1:])  # noqa: S301 - from a process of ours
        if answer[:1] == REFUSED:
            raise content()
        parsed: _Parsed = content
        return parsed


class Counted:
    """The bytes of one body, and the values in it, while it arrives."""

    __slots__ = ("_request", "_shares", "_size", "_taken", "values")

    def __init__(self, shares: Shares, request: Request) -> None:
        self._shares = shares
        self._request = request
        self._size = 0
        self._taken = 0
        self.values = 0

    def add(self, piece: bytes) -> None:
        """Raises TooManyValues and BodiesTooLarge."""
        self.values += len(piece) - len(piece.translate(None, b"[{,:"))  # quicker than `count` of each
        if self.values > MAX_VALUES:
            raise TooManyValues(limit=MAX_VALUES)
        self.hold(len(piece))

    def hold(self, size: int) -> None:
        """So much more is in memory. Raises BodiesTooLarge."""
        self._size += size
        self._take(self._size)

    def expect(self, most: int) -> None:
        """So much more may soon be in memory. Raises BodiesTooLarge."""
        expected = self._size + most
        length = self._request.header(b"content-length")
        self._take(expected if length is None else min(expected, int(length)))

    def _take(self, size: int) -> None:
        more = size - _FREE_BYTES - self._taken
        if more > 0:
            try:
                self._shares.take(self._request.sender, more)
            except Full as full:
                raise BodiesTooLarge(limit=full.limit) from None
            self._taken += more

    def give_back(self) -> None:
        """The body has become something else."""
        if self._taken:
            self._shares.give_back(self._request.sender, self._taken)
            self._taken = 0


def _check_json(request: Request) -> None:
    """Raise ContentTypeWrong and ContentEncodingNotSupported for a body that is not sent as plain JSON.

    Browsers let any web page send text and forms to any server, but JSON only to one that allows it.
    """
    sent = request.header(b"content-type")
    kind = (sent or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ContentTypeWrong(sent="missing" if sent is None else visible(sent[:_MAX_SHOWN]))
    encoding = (request.header(b"content-encoding") or "").strip()
    if encoding.lower() not in ("", "identity"):
        raise ContentEncodingNotSupported(encoding=visible(encoding[:_MAX_SHOWN]))
