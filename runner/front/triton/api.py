"""Triton's HTTP protocol: which requests are forwarded, and what of them.

Only what is listed here: Triton also lets clients load models, map shared memory, and write logs and traces.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING

import orjson

from runner.fair_queue import Shares
from runner.front.app import App
from runner.front.bodies import RECEIVED_BYTES, Counted
from runner.front.http import Disconnected
from runner.front.triton.bodies import (
    JSON_LENGTH,
    LARGEST,
    check_json,
    json_length,
    read_body,
)
from runner.front.triton.exchange import Exchange
from shared.errors import (
    BrowserRefused,
    CogTritonError,
    MethodNotAllowed,
    Overloaded,
    ShuttingDown,
    TritonPathUnknown,
    TritonUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.front.http import Header, Request
    from runner.front.router import Handler
    from runner.settings import Settings
    from runner.triton.server import TritonSockets

_READ_SECONDS = 10  # for what Triton answers without the engine
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_MODELS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")
_READ = (
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/stats",
    *(model + what for model in _MODELS for what in ("", "/ready", "/config", "/stats")),
)
_GENERATE = tuple(model + what for model in _MODELS for what in ("/generate", "/generate_stream"))
_INFER = tuple(f"{model}/infer" for model in _MODELS)
_INDEX = "/v2/repository/index"
_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_TO_TRITON = (b"content-type", b"accept-encoding")
_FROM_TRITON = {b"content-type", b"content-encoding", b"content-length", JSON_LENGTH}


def http_app(settings: Settings, sockets: TritonSockets) -> App:
    """What answers at TRITON_HTTP_ADDRESS."""
    app = App(min(settings.max_body_bytes, LARGEST))
    gate = _Gate(sockets, settings.admitted_at_once)
    for path in _READ:
        app.router.add("GET", path, _in_tritons_form(gate.read))
    for path in (*_GENERATE, _INDEX):
        app.router.add("POST", path, _in_tritons_form(gate.ask))
    for path in _INFER:
        app.router.add("POST", path, _in_tritons_form(partial(gate.ask, may_be_binary=True)))
    app.router.refuse("", _refuse)
    return app


def metrics_app(sockets: TritonSockets) -> App:
    """What answers at TRITON_METRICS_ADDRESS."""
    app = App(0)

    async def metrics(request: Request) -> None:
        await _relay(request, await Exchange.open(sockets.metrics, "GET", "/metrics"), _READ_SECONDS)

    app.router.add("GET", "/metrics", _in_tritons_form(metrics))
    app.router.refuse("", _refuse)
    return app


class _Gate:
    """The way to one Triton's HTTP."""

    def __init__(self, sockets: TritonSockets, most_requests: int) -> None:
        self._sockets = sockets
        self._received = Shares(RECEIVED_BYTES)
        self._most_requests = most_requests
        self._requests = 0

    async def read(self, request: Request) -> None:
        """Forward a request without its body. Raises TritonUnavailable."""
        exchange = await Exchange.open(self._sockets.http, "GET", request.path, _forwarded(request))
        await _relay(request, exchange, _READ_SECONDS)

    async def ask(self, request: Request, *, may_be_binary: bool = False) -> None:
        """Forward a request with its body. `may_be_binary`: its JSON may be followed by tensors.

        Raises Overloaded, TritonUnavailable, and what `bodies` does for a bad body.
        """
        if self._requests >= self._most_requests:
            what = "requests for Triton are in progress"
            raise Overloaded(limit=self._most_requests, what=what, fix="raise MAX_PREDICTIONS")
        self._requests += 1
        try:
            await _relay(request, await self._sent(request, may_be_binary=may_be_binary))
        finally:
            self._requests -= 1

    async def _sent(self, request: Request, *, may_be_binary: bool) -> Exchange:
        counted = Counted(self._received, request)
        try:
            body = await read_body(request, counted)
            length = json_length(request, body) if may_be_binary else None
            check_json(body, length)
            headers = _forwarded(request)
            if length is not None:
                headers.append((JSON_LENGTH, b"%d" % length))
            return await Exchange.open(self._sockets.http, "POST", request.path, headers, body)
        finally:
            counted.give_back()


def _forwarded(request: Request) -> list[Header]:
    return [header for header in request.scope["headers"] if header[0] in _TO_TRITON]


async def _relay(request: Request, exchange: Exchange, seconds: float | None = None) -> None:
    """Answer with what Triton answers, as it arrives. Its head may take so many `seconds`.

    Raises TritonUnavailable, and ShuttingDown when this process ends before the answer does.
    """
    left = asyncio.Event()

    def leave() -> None:
        left.set()
        exchange.abort()  # Triton then cancels the request

    request.on_disconnect(leave)
    streams = False
    try:
        async with asyncio.timeout(seconds):
            status = await exchange.status()
        headers = [header for header in exchange.headers if header[0] in _FROM_TRITON]
        streams = _EVENTS in headers
        await request.begin(status, *headers)
        async for piece in exchange.body():
            await request.send(piece)
    except TimeoutError:
        raise TritonUnavailable(reason="it does not answer") from None
    except (TritonUnavailable, asyncio.CancelledError) as problem:
        if left.is_set():
            raise Disconnected from None
        error = problem if isinstance(problem, TritonUnavailable) else ShuttingDown()
        if not (streams and request.started):
            raise error from None
        await request.send(b"data: %b\n\n" % orjson.dumps(_said(error)))
    finally:
        exchange.abort()
    await request.end()


def _in_tritons_form(handler: Handler) -> Handler:
    """`handler`, for programs alone, and its errors as Triton's."""

    async def handle(request: Request) -> None:
        try:
            _refuse_browsers(request)
            if not all(_NAME.fullmatch(name) for name in request.variables.values()):
                raise TritonPathUnknown(path=request.path)
            await handler(request)
        except CogTritonError as error:
            if request.started:
                raise
            await request.respond_error(error, content=_said(error))

    return handle


def _refuse_browsers(request: Request) -> None:
    """Raise BrowserRefused for what a web page sends: Triton's clients send no type of content by which a
    browser would ask first.
    """
    if request.header(b"origin") is not None:
        raise BrowserRefused(header="Origin")
    if (request.header(b"sec-fetch-site") or "none") != "none":
        raise BrowserRefused(header="Sec-Fetch-Site")


async def _refuse(request: Request, methods: Sequence[str]) -> None:
    error: CogTritonError = TritonPathUnknown(path=request.path)
    if methods:
        allowed = " or ".join(methods)
        error = MethodNotAllowed(path=request.path, method=request.method, allowed=allowed)
    await request.respond_error(error, content=_said(error))


def _said(error: CogTritonError) -> dict[str, str]:
    return {"error": str(error)}
