"""Clients that mean no good, or are out of order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time

import httpx2
import pytest
import uvicorn

from runner.front.protocol import Bounds, bounded
from shared.errors import BodyTooLarge, HeadersTooLarge, RequestMalformed, RequestTooSlow, TooManyConnections
from tests.support.front import running
from tests.support.raw_http import connected, everything, head, status_of, text_of
from tests.support.waiting import wait_for

LIMIT = 4096
HEADER_LIMIT = 8192
SECONDS = 0.5


@pytest.fixture(scope="module")
def strict(engine_directory):
    """A front with small bounds."""
    seconds = dict.fromkeys(("header_seconds", "body_seconds", "stall_seconds"), SECONDS)
    bounds = {"header_bytes": HEADER_LIMIT, **seconds}
    with running(
        engine_directory,
        step_seconds=0,
        bounds=bounds,
        MAX_BODY_BYTES=str(LIMIT),
        MAX_CONNECTIONS="20",
        ACCEPT_ANY_MODEL="true",
    ) as server:
        yield server


def still_answers(front) -> bool:
    answer = httpx2.post(
        f"{front.url}/predictions", json={"input": {"prompt": "a", "max_tokens": 1}}, timeout=20
    )
    return answer.json()["output"] == ["95"]


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_with_requests_in_a_row_is_no_error_of_ours(strict, caplog, stream):
    body = json.dumps({"model": "any", "prompt": "4", "stream": stream}).encode()  # it hangs
    with connected(strict, 2 * (head(len(body), "/v1/completions") + body)):
        wait_for(lambda: strict.client.in_flight)
    wait_for(lambda: not strict.server.server_state.tasks)
    assert [record.getMessage() for record in caplog.records if record.name == "uvicorn.error"] == []


@pytest.mark.parametrize("begun", [b"POST /predictions HTTP/1.1\r\n", head(4) + b"{"])
def test_half_a_request_behind_a_stream_does_not_end_the_stream(engine_directory, begun):
    seconds = dict.fromkeys(("header_seconds", "body_seconds"), SECONDS)
    body = json.dumps({"input": {"prompt": "a", "max_tokens": 40}}).encode()
    streamed = head(len(body)).replace(b"Host", b"Accept: text/event-stream\r\nHost") + body
    with (
        running(engine_directory, step_seconds=SECONDS / 10, bounds=seconds) as front,
        connected(front, streamed + begun) as connection,
    ):
        stream, end, refused = everything(connection).partition(b"event: completed")
    assert stream.count(b"event: output") == 40
    assert end
    text = refused.partition(b"\r\n\r\n{")[2].decode()
    assert json.loads("{" + text)["error_code"] == "E1328"


def test_a_body_that_is_too_large_is_refused_before_it_comes(strict, answered):
    with connected(strict, head(100 << 20)) as connection:
        answered(text_of(everything(connection)), BodyTooLarge(limit=LIMIT))


def test_a_body_that_grows_too_large(strict):
    chunked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connected(strict, chunked) as connection:
        connection.sendall(b"%x\r\n%b\r\n" % (LIMIT + 1, b" " * (LIMIT + 1)))
        answer = connection.recv(1 << 16)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_who_sends_on_after_a_refusal_can_read_it(strict):
    headers = {"content-type": "application/json"}
    url = f"{strict.url}/predictions"
    assert httpx2.post(url, content=b" " * (8 << 20), headers=headers, timeout=20).status_code == 413
    assert httpx2.post(url, content=b" " * (8 << 20), timeout=20).status_code == 415


def test_who_sends_on_to_a_connection_that_ends_can_read_why(strict, answered):
    """A kernel that closes a socket with something unread resets it, and the answer may be lost."""
    size = 8 << 20
    closing = head(size).replace(b"Host: x", b"Host: x\r\nConnection: close")
    with connected(strict, closing) as connection:
        for _ in range(size >> 16):
            connection.sendall(b" " * (1 << 16))
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while data := connection.recv(1 << 16):
            received += data
    answered(text_of(received), BodyTooLarge(limit=LIMIT))
    deadline = time.monotonic() + 3  # not the time that it may linger
    while strict.server.server_state.connections:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("begin", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_headers_that_do_not_come(strict, begin):
    with connected(strict, begin) as connection:
        answer = everything(connection)
    assert status_of(answer) == 408
    assert text_of(answer) == str(RequestTooSlow(part="head", seconds=SECONDS))


def test_headers_that_drip(strict):
    began = time.monotonic()
    with connected(strict, b"GET / HTTP/1.1\r\n") as connection, contextlib.suppress(ConnectionError):
        while time.monotonic() < began + 20:
            connection.sendall(b"a: b\r\n")
            time.sleep(0.05)
    assert time.monotonic() < began + 10


def test_headers_that_do_not_end(strict, answered):
    with connected(strict, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3000) as connection:
        answer = everything(connection)
    assert status_of(answer) == 431
    answered(text_of(answer), HeadersTooLarge(limit=HEADER_LIMIT))


@pytest.mark.parametrize(
    "address",
    [b"http://a:99999/x", b"http://", b"http://a:/", b"http:///x", b"http://a@b@c/", b"http://[::1"],
)
@pytest.mark.parametrize("before", [b"", b"GET /health-check HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_an_address_that_is_none(strict, answered, address, before):
    """Its sender got nothing, and the log a traceback."""
    with connected(strict, before) as connection:
        if before:
            assert b'"status"' in connection.recv(1 << 16)
        connection.sendall(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % address)
        answer = everything(connection)
    assert status_of(answer) == 400
    answered(text_of(answer), RequestMalformed())


@pytest.mark.parametrize("bytes_over", [1, 100, HEADER_LIMIT, 3 * HEADER_LIMIT])
def test_an_address_that_is_too_long(strict, answered, bytes_over):
    with connected(
        strict, b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * (HEADER_LIMIT + bytes_over))
    ) as one:
        answer = everything(one)
    assert status_of(answer) == 431
    answered(text_of(answer), HeadersTooLarge(limit=HEADER_LIMIT))


def test_headers_that_are_too_long_come_whole(strict, answered):
    """In one read, with the end of the request."""
    long = b"a: " + b"b" * HEADER_LIMIT
    chunked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    for sent in (b"GET / HTTP/1.1\r\n%b\r\n\r\n", chunked + b"2\r\n{}\r\n0\r\n%b\r\n\r\n"):
        with connected(strict, sent % long) as connection:
            answer = everything(connection)
        assert status_of(answer) == 431
        answered(text_of(answer), HeadersTooLarge(limit=HEADER_LIMIT))


def test_a_body_that_does_not_come(strict, answered):
    with connected(strict, head(100) + b"{") as connection:
        answer = everything(connection)
    assert status_of(answer) == 408
    answered(text_of(answer), RequestTooSlow(part="body", seconds=SECONDS))


def test_a_body_that_does_not_come_once_its_request_is_answered(strict):
    with connected(strict, head(100, "/nowhere") + b"{") as connection:
        answer = everything(connection)
    assert status_of(answer) == 404
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"CONNECT /predictions HTTP/1.1\r\n\r\n",
        b"CONNECT host:80 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
    ],
)
def test_no_http_at_all(strict, answered, sent):
    with connected(strict, sent) as connection:
        answer = everything(connection)
    assert status_of(answer) == 400
    answered(text_of(answer), RequestMalformed())


def test_what_is_no_http_does_not_go_into_the_answer_before_it(strict, answered):
    body = json.dumps({"input": {"prompt": "a", "max_tokens": 1000}}).encode()
    events = head(len(body)).replace(b"Host", b"Accept: text/event-stream\r\nHost") + body
    with connected(strict, events) as connection:
        received = connection.recv(1 << 16)
        connection.sendall(b"nonsense\r\n\r\n")
        received += everything(connection)
    stream, end, refused = received.partition(b"0\r\n\r\n")
    assert stream.count(b"event: completed") == 1
    assert end
    assert status_of(refused) == 400
    answered(text_of(refused), RequestMalformed())


@pytest.mark.parametrize("trailers", [b"a: b\r\n", b"x"])
def test_trailers_that_do_not_end(strict, answered, trailers):
    chunked = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connected(strict, chunked + b"2\r\n{}\r\n0\r\na: ") as connection:
        with contextlib.suppress(ConnectionError):
            for _ in range(200):
                connection.sendall(trailers * (HEADER_LIMIT // len(trailers)))
                time.sleep(0.001)
        answer = everything(connection)
    # Where the refusal was lost, because more came after it, the connection was closed all the same.
    if answer:
        answered(text_of(answer), HeadersTooLarge(limit=HEADER_LIMIT))


def test_trailers_are_no_headers(strict):
    body = b'{"input": {"prompt": "a", "max_tokens": 1}}'
    chunked = head(0).replace(b"Content-Length: 0", b"Connection: close\r\nTransfer-Encoding: chunked")
    sent = b"%b%x\r\n%b\r\n0\r\nAccept: text/event-stream\r\n\r\n" % (chunked, len(body), body)
    with connected(strict, sent) as connection:
        assert b"\r\ncontent-type: application/json\r\n" in everything(connection)


def test_many_requests_at_once_are_no_long_head(strict):
    one = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    count = 3 * HEADER_LIMIT // len(one)
    with connected(strict, one * count + one[:-4] + b"\r\nConnection: close\r\n") as connection:
        time.sleep(0.05)
        connection.sendall(b"\r\n")
        assert everything(connection).count(b"HTTP/1.1 200 ") == count + 1


@pytest.mark.parametrize("cut", [0, 1, 60, 200, 1000])
@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
def test_who_offers_another_protocol_is_answered_in_this_one(strict, protocol, cut):
    """As Java's own client offers HTTP/2 with each request to an http address."""
    body = b'{"input": {"prompt": "a", "max_tokens": 1}}'
    offer = f"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: AA\r\nHost"
    sent = head(len(body)).replace(b"Host", offer.encode()) + body
    after = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(strict, sent[:cut]) as connection:
        time.sleep(0.02)
        connection.sendall(sent[cut:])
        time.sleep(0.05)
        connection.sendall(after)
        answer = everything(connection)
    assert json.JSONDecoder().raw_decode(answer.partition(b"\r\n\r\n")[2].decode())[0]["output"] == ["95"]
    assert answer.count(b"HTTP/1.1 200 ") == 2


def test_more_connections_than_there_may_be(strict, answered):
    with contextlib.ExitStack() as stack:
        request = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
        idle = [stack.enter_context(connected(strict, request)) for _ in range(20)]
        for connection in idle:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        with connected(strict, request) as one_more:
            answer = everything(one_more)
        assert status_of(answer) == 503
        answered(text_of(answer), TooManyConnections(limit=20))
        assert b"retry-after: 2\r\n" in answer
    assert still_answers(strict)


def test_a_reader_that_does_not_read_is_let_go(strict):
    body = json.dumps({"input": {"prompt": "a", "max_tokens": 3_000_000}}).encode()
    events = head(len(body)).replace(b"Host", b"Accept: text/event-stream\r\nHost")
    with connected(strict, events + body) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.recv(10)
        assert strict.front.admission.count == 1
        deadline = time.monotonic() + 120
        while strict.front.admission.count or strict.client.in_flight:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert still_answers(strict)


def test_paths_that_are_none(strict):
    for path in (b"/predictions/%00", b"//", b"/predictions/..%2f..%2fx/cancel", b"/\xff", b"*"):
        with connected(
            strict, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ) as connection:
            assert int(everything(connection).split()[1]) in (400, 404, 405)
    assert still_answers(strict)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 300 + b"]" * 300,
        b'{"webhook": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"input": {"prompt": ' + b'{"a":' * 300 + b"1" + b"}" * 302,
        b"[" * 4000,
        b'{"input": {"prompt": "\\ud800"}}',
        b'{"input": {"seed": 1e999}}',
        b"\xff\xfe",
    ],
)
def test_json_that_is_odd(strict, body):
    headers = {"content-type": "application/json"}
    answer = httpx2.post(f"{strict.url}/predictions", content=body, headers=headers, timeout=20)
    assert answer.status_code in (400, 422)


def old(body: dict, path: str = "/predictions", *lines: str) -> bytes:
    """A request of HTTP/1.0."""
    content = json.dumps(body).encode()
    head = "\r\n".join([f"POST {path} HTTP/1.0", "Content-Type: application/json", *lines])
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def test_a_client_of_http_1_0_gets_events_without_chunks(strict):
    asked = {"input": {"prompt": "a", "max_tokens": 3}}
    with connected(strict, old(asked, "/predictions", "Accept: text/event-stream")) as connection:
        head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body.startswith(b"event: start\ndata: {")
    assert body.endswith(b"}\n\n")


def test_a_client_of_http_1_0_gets_a_body_with_a_length(strict):
    with connected(strict, old({"input": {"prompt": "a", "max_tokens": 3}})) as connection:
        head, _, body = everything(connection).partition(b"\r\n\r\n")
    assert b"content-length: %d\r\n" % len(body) in head
    assert json.loads(body)["status"] == "succeeded"


def test_a_client_that_reads_slowly_gets_everything(monkeypatch):
    """What waits for it becomes less, though it takes longer than the time in which it must take something.

    The clock of the loop goes on with each read of the client: a busy machine changes nothing.
    """
    size = 12 << 20

    async def answer(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size)})

    async def received():
        own = bounded(Bounds(1, stall_seconds=SECONDS), lambda _error: None)
        server = uvicorn.Server(uvicorn.Config(answer, http=own, lifespan="off", log_config=None))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.create_task(server.serve([listener]))
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, listener.getsockname())
                await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                count, now = 0, loop.time()
                monkeypatch.setattr(loop, "time", lambda: now)
                with contextlib.suppress(ConnectionError):
                    while data := await loop.sock_recv(client, 1 << 17):
                        count += len(data)
                        now += SECONDS / 5
                        await asyncio.sleep(0)
            server.should_exit = True
            while not serving.done():
                now += SECONDS
                await asyncio.sleep(0)
        return count

    assert asyncio.run(received()) > size
