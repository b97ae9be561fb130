import asyncio
import contextvars

import pytest
import structlog

from runner.front.http import Request
from runner.front.keys import Keys, needs_key, parse_keys
from runner.front.tracing import trace
from shared.log_rate import _client

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def call(**sent):
    """The headers of the answer to a request with these, and what its log lines say."""
    headers = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items()]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    request = Request(scope, None, None, 0, print)

    def traced():
        trace(request)
        return structlog.contextvars.get_contextvars()

    bound = contextvars.Context().run(traced)
    return {name.decode(): value.decode() for name, value in request.headers}, bound


def test_a_request_id_is_taken_and_given_back():
    given, bound = call(x_request_id="abc-1")
    assert given == {"x-request-id": "abc-1"}
    assert bound == {"request_id": "abc-1"}


@pytest.mark.parametrize(
    "sent", [{}, {"x_request_id": "a b"}, {"x_request_id": "a" * 129}, {"x_request_id": "ä"}]
)
def test_a_request_without_a_good_id_gets_one(sent):
    given, bound = call(**sent)
    assert len(given["x-request-id"]) == 32
    assert bound == {"request_id": given["x-request-id"]}


@pytest.mark.parametrize("parent", [PARENT, PARENT.replace("00-", "01-", 1) + "-more"])
def test_a_trace_context_is_taken_and_given_back(parent):
    given, bound = call(x_request_id="r", traceparent=parent, tracestate="a=b")
    assert given == {"x-request-id": "r", "traceparent": parent, "tracestate": "a=b"}
    assert bound == {
        "request_id": "r",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "span_id": "00f067aa0ba902b7",
    }


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        PARENT.upper(),
        PARENT + "-more",
        PARENT.replace("00-", "01-", 1) + "-\r\nx: y",
        "ff" + PARENT[2:],
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
    ],
)
def test_a_trace_context_that_is_not_valid_counts_as_none(parent):
    given, bound = call(x_request_id="r", traceparent=parent, tracestate="a=b")
    assert given == {"x-request-id": "r"}
    assert bound == {"request_id": "r"}


def test_log_lines_are_counted_by_address_and_then_by_key():
    async def handled(request):
        counted.append(_client.get())

    async def call():
        request = Request(scope, None, None, 0, print)
        trace(request)
        counted.append(_client.get())
        await needs_key(handled, Keys(parse_keys(["alice key-of-alice"], "API_KEYS")))(request)

    counted: list[str | None] = []
    headers = [(b"authorization", b"Bearer key-of-alice")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": ("::1", 7)}
    asyncio.run(call())
    assert counted == ["::/64", "alice"]
