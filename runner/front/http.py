"""One HTTP request and its answer, on raw ASGI: bodies with a limit, JSON, event streams, coded errors."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any

import orjson

from runner.front.statuses import retry_after, status_of
from shared.errors import BodyTooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping

    from runner.prediction.admission import Ticket
    from shared.errors import CogTritonError

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

CLIENT = "cog-triton.client"
"""ASGI's extension by which a request knows its `Client`: waiting for `http.disconnect` would take a task."""

Header = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
_EVENTS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would keep the events until they fill its buffer
)


def refusal(error: CogTritonError) -> dict[str, str]:
    """The body that reports an error in Cog's API."""
    return {"detail": str(error), "error": str(error), "error_code": error.code}


def _nothing() -> None:
    pass


class Client:
    """The other end of a connection."""

    __slots__ = ("comment", "is_gone", "on_leaving", "takes_comments")

    def __init__(self, comment: Callable[[], object]) -> None:
        """`comment` sends a comment, if its answer is an event stream."""
        self.comment = comment
        self.is_gone = False
        self.takes_comments = False
        """Whether its answer is an event stream: a comment may be sent at any time."""
        self.on_leaving: set[Callable[[], object]] = set()
        """Called when it leaves."""

    def leave(self) -> None:
        """It has left."""
        self.is_gone = True
        self.comment = _nothing  # or it would keep the connection alive
        for callback in list(self.on_leaving):
            callback()


class Disconnected(Exception):
    """The client left before its request was complete: there is nobody to answer."""


class Request:
    """One request. Its handler answers with one of the `respond` methods, or with `events`."""

    __slots__ = (
        "_alarm",
        "_keep_alive",
        "_left",
        "_receive",
        "_send",
        "_sent_at",
        "count",
        "headers",
        "key",
        "limit",
        "method",
        "path",
        "place",
        "scope",
        "started",
        "trace_context",
        "variables",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limit: int,
        count: Callable[[CogTritonError], object],
        keep_alive: float = 0,
    ) -> None:
        """`limit`: how many bytes its body may have; `count` gets each error that is its answer. An event
        stream in which nothing comes for `keep_alive` seconds gets a comment; 0: none.
        """
        self.scope = scope
        self.count = count
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.key = ""
        """The identity of the API key's holder, if a key was needed."""
        self.variables: dict[str, str] = {}
        """The values of the route's `{name}`s."""
        self.headers: list[Header] = []
        """Sent with the answer, whatever it is."""
        self.trace_context: Mapping[str, str] = {}
        """The headers that pass it on, if it was sent."""
        self.limit = limit
        self.started = False
        """Whether the answer has begun."""
        self.place: Ticket | None = None
        """Where a prediction is let in before it is known, until something takes it."""
        self._receive = receive
        self._send = send
        self._left: Callable[[], object] | None = None
        self._keep_alive = keep_alive
        self._sent_at = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    def header(self, name: bytes) -> str | None:
        """The first header of that name (in lower case)."""
        for one, value in self.scope["headers"]:
            if one == name:
                return str(value, "latin-1")
        return None

    @property
    def sender(self) -> str:
        """Whose work this is, where it shares something fairly with others': the holder of the API key, else
        the client's address. A machine may have any address of an IPv6 network of 64 bits.
        """
        if self.key:
            return self.key
        host: str = (self.scope["client"] or ("",))[0]
        if ":" not in host:
            return host
        return str(IPv6Network((host.partition("%")[0], 64), strict=False))

    async def body(
        self,
        on_piece: Callable[[bytes], object] | None = None,
        before_more: Callable[[], Awaitable[object]] | None = None,
    ) -> bytes:
        """The whole body; `on_piece` gets each piece as it arrives, and may refuse it. `before_more` is
        awaited before each piece after the first; meanwhile, that waits in the client.

        Raises BodyTooLarge as soon as it is known to be too large.
        """
        length = self.header(b"content-length")
        if length is not None and length.isdecimal() and int(length) > self.limit:
            raise BodyTooLarge(limit=self.limit)
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            piece: bytes = message.get("body", b"")
            if len(body) + len(piece) > self.limit:
                raise BodyTooLarge(limit=self.limit)
            if on_piece is not None:
                on_piece(piece)
            body += piece
            if not message.get("more_body"):
                return bytes(body)
            if before_more is not None:
                await before_more()

    def on_disconnect(self, callback: Callable[[], object]) -> None:
        """Have `callback` called once, when the client leaves, or soon if it has left."""
        client = self._client
        if client.is_gone:
            asyncio.get_running_loop().call_soon(callback)
            return
        self._left = callback
        client.on_leaving.add(callback)

    def take_place(self) -> Ticket | None:
        """Its place, for what then gives it back."""
        place, self.place = self.place, None
        return place

    def close(self) -> None:
        """Stop watching the client, and give back what is still its."""
        if self.place is not None:
            self.place.leave()
        if self._left is not None:
            self._client.on_leaving.discard(self._left)
            self._left = None
        self._stop_comments()

    @contextmanager
    def while_connected(self) -> Iterator[None]:
        """Cancel what is done inside when the client leaves; then Disconnected is raised."""
        task = asyncio.current_task()
        assert task is not None
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            task.cancel()

        client = self._client
        if client.is_gone:
            raise Disconnected
        client.on_leaving.add(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not gone:
                raise
            task.uncancel()
            raise Disconnected from None
        finally:
            client.on_leaving.discard(leave)

    @property
    def _client(self) -> Client:
        client: Client = self.scope["extensions"][CLIENT]["client"]
        return client

    async def respond(self, status: int, body: bytes, *headers: Header) -> None:
        """Answer with this body."""
        length = (b"content-length", b"%d" % len(body))
        await self._start(status, (*headers, length))
        await self._send({"type": "http.response.body", "body": body})

    async def respond_json(self, status: int, content: Any, *headers: Header) -> None:
        """Answer with this as JSON."""
        await self.respond(status, orjson.dumps(content), JSON, *headers)

    async def respond_error(
        self, error: CogTritonError, status: int | None = None, content: Any = None
    ) -> None:
        """Answer with the error; unless they are given, `status` and `content` are those of Cog's API."""
        self.count(error)
        content = refusal(error) if content is None else content
        await self.respond_json(status or status_of(error), content, *retry_after(error))

    async def hand_to(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        """Let another ASGI application answer, as long as the client stays."""
        gone = asyncio.Event()

        async def send(message: Message) -> None:
            if gone.is_set():
                raise Disconnected
            if message["type"] == "http.response.start":
                self.started = True
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await self._send(message)

        self.on_disconnect(gone.set)
        await app(self.scope, self._receive, send)

    async def events(self, *headers: Header) -> None:
        """Begin an answer that is an event stream; then `send` events, and `end` it."""
        self._client.takes_comments = True
        if self._keep_alive:
            loop = asyncio.get_running_loop()
            self._sent_at = loop.time()
            self._alarm = loop.call_later(self._keep_alive, self._comment, loop)
        await self.begin(200, *_EVENTS, *headers)

    def _comment(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send a comment if nothing has come for long: proxies and clients give up silent connections."""
        now = loop.time()
        if now - self._sent_at >= self._keep_alive:
            self._client.comment()
            self._sent_at = now
        self._alarm = loop.call_at(self._sent_at + self._keep_alive, self._comment, loop)

    def _stop_comments(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    async def begin(self, status: int, *headers: Header) -> None:
        """Begin an answer that comes in pieces; then `send` them, and `end` it."""
        await self._start(status, headers)

    async def send(self, data: bytes) -> None:
        """Some events. Waits while the client is further behind than its buffer holds."""
        if self._alarm is not None:
            self._sent_at = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """End what `events` began."""
        self._stop_comments()
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, status: int, headers: Iterable[Header]) -> None:
        self.started = True
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*headers, *self.headers]}
        )
