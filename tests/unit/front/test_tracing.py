import asyncio

import pytest
import structlog

from runner.front.tracing import traced

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def call(**sent):
    """The headers of the answer to a request with these, and what its log lines say."""
    bound = {}

    async def application(scope, receive, send):
        bound.update(structlog.contextvars.get_contextvars())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
        await send({"type": "http.response.body", "body": b""})

    messages = []

    async def send(message):
        messages.append(message)

    headers = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items()]
    asyncio.run(traced(application)({"type": "http", "headers": headers}, None, send))
    given = {name.decode(): value.decode("latin-1") for name, value in messages[0]["headers"]}
    assert given.pop("a") == "b"
    return given, bound


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
        "ff" + PARENT[2:],
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
    ],
)
def test_a_trace_context_that_is_not_valid_counts_as_none(parent):
    given, bound = call(x_request_id="r", traceparent=parent, tracestate="a=b")
    assert given == {"x-request-id": "r"}
    assert bound == {"request_id": "r"}


def test_what_is_not_http_goes_by():
    seen = []

    async def application(scope, receive, send):
        seen.append(scope)

    asyncio.run(traced(application)({"type": "lifespan"}, None, None))
    assert seen == [{"type": "lifespan"}]
