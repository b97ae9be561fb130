"""What a request leaves behind: nothing, not even for the garbage collector.

Collections are rare in the front (a full one may take a hundred thousand requests), so that whatever waits
for one stands between what lives on, and memory grows.
"""

from __future__ import annotations

import contextlib
import gc
import json
import socket
import time
from collections import Counter

import pytest

from tests.support.front import running

TIMES = 5
OURS = ("runner.", "shared.", "uvicorn.", "uvloop.", "_asyncio.", "builtins.frame", "builtins.traceback")
"""What must not wait; tenacity's own knots are small, and tied for webhooks alone."""
EVENTS = "Accept: text/event-stream\r\n"
SHORT = {"input": {"prompt": "a", "max_tokens": 3}}
LONG = {"input": {"prompt": "a", "max_tokens": 100_000}}
COMPLETION = {"model": "model", "prompt": "a", "max_tokens": 3}


@pytest.fixture(scope="module")
def front(engine_directory):
    with (
        socket.create_server(("127.0.0.1", 0)) as hook,
        running(
            engine_directory,
            KEEP_PREDICTIONS="2",
            MAX_BODY_BYTES="65536",
            WEBHOOK_ALLOW=f"http://127.0.0.1:{hook.getsockname()[1]}",
        ) as server,
    ):
        server.hook = hook
        yield server


@contextlib.contextmanager
def asked(front, method, path, body=None, headers=""):
    """A connection on which this was asked, and which ends after the answer."""
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as connection:
        connection.sendall(head.encode() + content)
        yield connection


def answer(connection) -> bytes:
    received = b""
    while data := connection.recv(1 << 16):
        received += data
    return received


def until(connection, part: bytes) -> None:
    received = b""
    while part not in received:
        data = connection.recv(1 << 16)
        assert data, received
        received += data


def whole(method, path, body=None, headers="", status=200, part=b""):
    def ask(front, _number):
        with asked(front, method, path, body, headers) as connection:
            received = answer(connection)
            assert received.startswith(b"HTTP/1.1 %d " % status)
            assert part in received

    return ask


def leaves(path, body, headers=""):
    """Goes away in the middle of the answer, or before it."""

    def ask(front, _number):
        before = len(front.client.requests)
        with asked(front, "POST", path, body, headers) as connection:
            if headers or body.get("stream"):
                until(connection, b"data: ")
            else:
                wait(lambda: len(front.client.requests) > before)

    return ask


def leaves_a_train(front, _number):
    """Goes away while most of its requests have not been read."""
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 20_000)
        until(connection, b"HTTP/1.1 200")


def leaves_a_body(front, _number):
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
        connection.sendall(head + b"x" * 50_000)
        wait(lambda: front.server.server_state.connections)


def cancels(front, number):
    with asked(front, "POST", "/predictions", {**LONG, "id": f"c-{number}"}, EVENTS) as connection:
        until(connection, b"event: output")
        whole("POST", f"/predictions/c-{number}/cancel")(front, number)
        assert b'"canceled"' in answer(connection)


def in_background(front, number):
    whole("PUT", f"/predictions/b-{number}", SHORT, "Prefer: respond-async\r\n", 202)(front, number)
    whole("GET", f"/predictions/b-{number}", None, EVENTS)(front, number)


def told(front, number):
    """With a webhook, which hears of the start and of the end."""
    address = f"http://127.0.0.1:{front.hook.getsockname()[1]}"
    body = {**SHORT, "webhook": address, "webhook_events_filter": ["start", "completed"]}
    whole("POST", "/predictions", body)(front, number)
    for _ in range(2):
        connection, _ = front.hook.accept()
        with connection:
            until(connection, b'"status"')
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


def refused(front, number):
    """While another one runs, and there is room for one."""
    limit, front.front.admission.limit = front.front.admission.limit, 1
    try:
        with asked(front, "POST", "/predictions", LONG, EVENTS) as running:
            until(running, b"data: ")
            whole("POST", "/predictions", SHORT, status=429)(front, number)
            whole("POST", "/v1/completions", COMPLETION, status=429)(front, number)
        wait(lambda: not front.client.in_flight)
    finally:
        front.front.admission.limit = limit


ASKS = {
    "whole": whole("POST", "/predictions", SHORT),
    "event stream": whole("POST", "/predictions", SHORT, EVENTS),
    "leaves a stream": leaves("/predictions", LONG, EVENTS),
    "leaves while it waits": leaves("/predictions", LONG),
    "leaves a train": leaves_a_train,
    "leaves a body": leaves_a_body,
    "is cancelled": cancels,
    "fails": whole(
        "POST", "/predictions", {"input": {"prompt": "3", "max_tokens": 8}}, EVENTS, part=b"E2405"
    ),
    "bad template": whole("POST", "/predictions", {"input": {"prompt": "a", "prompt_template": "{b}"}}),
    "bad input": whole("POST", "/predictions", {"input": {"prompts": "a"}}, status=422),
    "in the background": in_background,
    "webhook": told,
    "no room": refused,
    "no JSON": whole("POST", "/predictions", headers="Accept: */*\r\n", status=400),
    "too much": whole("POST", "/predictions", {"input": {"prompt": "a" * 70_000}}, status=413),
    "no such path": whole("GET", "/nowhere", status=404),
    "health": whole("GET", "/health/ready"),
    "metrics": whole("GET", "/metrics"),
    "completion": whole("POST", "/v1/completions", COMPLETION),
    "completion stream": whole("POST", "/v1/completions", {**COMPLETION, "stream": True}),
    "completion stream fails": whole(
        "POST", "/v1/completions", {**COMPLETION, "prompt": [8], "stream": True}
    ),
    "two completions": whole("POST", "/v1/completions", {**COMPLETION, "n": 2, "stream": True}),
    "completion fails": whole("POST", "/v1/completions", {**COMPLETION, "prompt": [8]}, status=500),
    "two completions fail": whole(
        "POST", "/v1/completions", {**COMPLETION, "prompt": [8], "n": 2}, status=500
    ),
    "stops": whole("POST", "/v1/completions", {**COMPLETION, "stop": ["5", "55"]}),
    "leaves a completion": leaves("/v1/completions", {**COMPLETION, "max_tokens": 100_000}),
    "leaves a completion stream": leaves(
        "/v1/completions", {**COMPLETION, "max_tokens": 100_000, "stream": True}
    ),
    "chat": whole(
        "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3}
    ),
    "other model": whole("POST", "/v1/completions", {**COMPLETION, "model": "other"}, status=404),
}


def wait(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_idle(front) -> bool:
    return not front.client.in_flight and not front.server.server_state.connections


@contextlib.contextmanager
def uncollected():
    """No collection happens inside; yields a function that says what waits for one."""

    def waiting() -> Counter[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
        gc.garbage.clear()
        return Counter({kind: count for kind, count in kinds.items() if kind.startswith(OURS)})

    gc.collect()
    gc.disable()
    try:
        yield waiting
    finally:
        gc.enable()
        gc.collect()


@pytest.mark.parametrize("name", ASKS)
def test_nothing_of_a_request_waits_for_the_garbage_collector(front, name):
    ask = ASKS[name]
    ask(front, "first")
    wait(lambda: is_idle(front))
    time.sleep(0.05)
    with uncollected() as waiting:
        for number in range(TIMES):
            ask(front, number)
        wait(lambda: is_idle(front))
        time.sleep(0.05)
        left = waiting()
    assert not left, left.most_common(30)
