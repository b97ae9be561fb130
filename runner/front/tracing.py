"""The id of each HTTP request, and W3C's trace context: accepted, returned, and included in every log line.

https://www.w3.org/TR/trace-context/: an invalid `traceparent` counts as none, and its `tracestate`
with it. No spans are made here.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from shared.log_rate import client_at
from shared.logs import bind_client, bind_contextvars

if TYPE_CHECKING:
    from runner.front.http import Request

_CONTEXT = ("traceparent", "tracestate")
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE_PARENT = re.compile(
    r"(?!ff)(?!00-.{52}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-[\x21-\x7e]*)?"
)
_TRACE_STATE = re.compile(r"[\x20-\x7e]{1,4096}")


def trace(request: Request) -> None:
    """Put `x-request-id` and trace context into the answer, and into the log lines of the calling task."""
    if address := request.scope.get("client"):
        bind_client(client_at(address[0]))
    request_id = request.header(b"x-request-id") or ""
    if not _REQUEST_ID.fullmatch(request_id):
        request_id = secrets.token_hex(16)
    given, bound = {"x-request-id": request_id}, {"request_id": request_id}
    parent = request.header(b"traceparent") or ""
    if found := _TRACE_PARENT.fullmatch(parent):
        given["traceparent"] = parent
        bound |= {"trace_id": found[1], "span_id": found[2]}
        state = request.header(b"tracestate") or ""
        if _TRACE_STATE.fullmatch(state):
            given["tracestate"] = state
    request.headers += [(name.encode(), value.encode()) for name, value in given.items()]
    request.trace_context = {name: given[name] for name in _CONTEXT if name in given}
    bind_contextvars(**bound)
