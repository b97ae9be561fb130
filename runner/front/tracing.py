"""The id of each HTTP request, and W3C's trace context: taken, given back, and told in every log line.

https://www.w3.org/TR/trace-context/: a `traceparent` that is not valid counts as none, and its `tracestate`
with it. No spans are made here.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    Scope = MutableMapping[str, Any]
    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACE_PARENT = re.compile(
    rb"(?!ff)(?!00-.{52}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?"
)
_MOST_TRACE_STATE = 4096


def traced(application: Application) -> Application:
    """`application`, with `x-request-id` and the trace context given back, and bound to its log lines."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given, bound = _context(headers)
        structlog.contextvars.bind_contextvars(**bound)

        async def send_with_context(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *given]
            await send(message)

        try:
            await application(scope, receive, send_with_context)
        finally:
            structlog.contextvars.unbind_contextvars(*bound)

    return call


def _context(headers: dict[bytes, bytes]) -> tuple[list[tuple[bytes, bytes]], dict[str, str]]:
    """The headers of the answer, and what log lines say."""
    request_id = headers.get(b"x-request-id", b"")
    if not _REQUEST_ID.fullmatch(request_id):
        request_id = uuid.uuid4().hex.encode()
    given = [(b"x-request-id", request_id)]
    bound = {"request_id": request_id.decode()}
    parent = headers.get(b"traceparent", b"")
    if found := _TRACE_PARENT.fullmatch(parent):
        given.append((b"traceparent", parent))
        bound |= {"trace_id": found[1].decode(), "span_id": found[2].decode()}
        state = headers.get(b"tracestate", b"")
        if 0 < len(state) <= _MOST_TRACE_STATE:
            given.append((b"tracestate", state))
    return given, bound
