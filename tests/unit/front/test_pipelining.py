"""Requests in a row on one connection: each is parsed when the one before it has been answered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import threading
import time
from collections import Counter

import pytest

from runner.front import pipelining
from runner.front.protocol import BoundedProtocol
from shared.errors import BodyLengthInvalid, HeadersTooLarge, HostHeaderInvalid, RequestTooSlow
from tests.support.front import running
from tests.support.raw_http import connected, everything, head, serving_asgi, status_of, text_of
from tests.support.waiting import wait_for

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = GET.replace(b"Host", b"Connection: close\r\nHost")
OFFER = GET.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: x\r\nHost")
ANSWER = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
END = {"type": "http.response.body", "body": b""}
HEADER_LIMIT = 8192
SECONDS = 0.5


async def body_of(receive) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message["more_body"]:
            return body


@pytest.fixture(scope="module")
def front(engine_directory):
    bounds = {"header_bytes": HEADER_LIMIT, "header_seconds": SECONDS}
    with running(engine_directory, step_seconds=0.001, bounds=bounds, ACCEPT_ANY_MODEL="true") as server:
        yield server


def test_offers_of_another_protocol_in_any_number(front):
    """From the 330th in one read on, all answers of the connection were lost to a RecursionError."""
    with connected(front, OFFER * 2000 + LAST) as connection:
        assert everything(connection).count(b"HTTP/1.1 200 ") == 2001


@pytest.mark.parametrize("request_", [GET, OFFER])
def test_a_pass_of_the_loop_reads_one_request_of_each_connection(request_, monkeypatch):
    """All requests of a read were parsed in the same pass, and the others waited for them."""
    now, begun = 0, Counter()

    def tick(loop):
        nonlocal now
        now += 1
        loop.call_soon(tick, loop)

    def count(protocol):
        if not now:
            tick(asyncio.get_running_loop())
        begun[id(protocol), now] += 1
        return begin(protocol)

    async def app(_scope, _receive, send):
        await send(ANSWER)
        await send(END)

    begin = BoundedProtocol.on_message_begin
    monkeypatch.setattr(BoundedProtocol, "on_message_begin", count)
    parses = 2 if request_ is OFFER else 1  # with the offer, and without
    with serving_asgi(app) as server, contextlib.ExitStack() as stack:
        many = [stack.enter_context(connected(server, request_ * 1000 + LAST)) for _ in range(4)]
        for connection in many:
            assert everything(connection).count(b"HTTP/1.1 200 ") == 1001
    assert begun.total() == 4 * (1000 * parses + 1)
    assert max(begun.values()) == parses


def test_a_request_begins_when_the_one_before_it_has_been_answered():
    open_, most = 0, 0

    async def app(_scope, receive, send):
        nonlocal open_, most
        open_ += 1
        most = max(most, open_)
        await body_of(receive)
        await asyncio.sleep(0.01)
        await send(ANSWER)
        open_ -= 1
        await send(END)

    with serving_asgi(app) as server, connected(server, GET * 20 + head(3) + b"abc" + LAST) as connection:
        assert everything(connection).count(b"HTTP/1.1 200 ") == 22
    assert most == 1


def test_what_waits_is_bounded_and_nothing_of_it_is_lost():
    """It was parsed as it came, without a bound."""
    size, count = 1 << 20, 16
    may_answer, bodies = threading.Event(), []

    async def app(_scope, receive, send):
        bodies.append(await body_of(receive))
        await asyncio.to_thread(may_answer.wait)
        await send(ANSWER)
        await send(END)

    with serving_asgi(app) as server, connected(server, GET) as connection:
        wait_for(lambda: server.server.server_state.tasks)
        [protocol] = server.server.server_state.connections
        sent, later = 0, (head(size) + bytes(size)) * count + LAST
        connection.settimeout(1)
        with contextlib.suppress(TimeoutError):
            while sent < len(later):
                sent += connection.send(later[sent : sent + (1 << 16)])
        assert sent < len(later)
        assert protocol.unparsed <= protocol.waiting_bytes + (1 << 18)  # what one read brings
        connection.settimeout(20)
        may_answer.set()
        connection.sendall(later[sent:])
        assert everything(connection).count(b"HTTP/1.1 200 ") == count + 2
    assert [len(body) for body in bodies] == [0, *[size] * count, 0]


@pytest.mark.parametrize("count", [40, 10_000])  # some, and all that the machine takes
@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_more_requests_behind_than_may_wait_is_noticed(front, stream, count):
    """Their connection is not read, so its end is not seen there: it may not even arrive."""
    body = json.dumps({"model": "any", "prompt": "4", "stream": stream}).encode()  # it hangs
    with connected(front, head(len(body), "/v1/completions") + body) as connection:
        wait_for(lambda: front.client.in_flight)
        connection.sendall(GET * 10_000)
        [protocol] = front.server.server_state.connections
        wait_for(lambda: protocol.flow.read_paused)
    wait_for(lambda: not front.server.server_state.connections, seconds=10)
    wait_for(lambda: not front.client.in_flight)


def test_what_is_refused_with_much_behind_it_leaves_nothing(front):
    with connected(front, GET + b"nonsense\r\n\r\n" + GET * 20_000) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = everything(connection)
    assert (answer.count(b"HTTP/1.1 200 "), answer.count(b"HTTP/1.1 400 ")) == (1, 1)
    wait_for(lambda: not front.server.server_state.connections, seconds=3)  # before it has lingered


def chunked(body: bytes, size: int, trailers: bytes = b"") -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    lines = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return lines + chunks + b"0\r\n" + trailers + b"\r\n"


BODIES = [b"", b"\r\n", b"\r\n\r\n", b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"0\r\n\r\n" * 50, b"a" * 40_000]


def written(body: bytes) -> list[bytes]:
    """The ways to send it."""
    offered = head(len(body)).replace(b"Host", b"Connection: Upgrade\r\nUpgrade: x\r\nHost")
    ways = [chunked(body, size, trailers) for size in (1, 7, 1 << 16) for trailers in (b"", b"A: b\r\n")]
    return [head(len(body)) + body, offered + body, *ways]


@pytest.mark.parametrize("seed", range(12))
def test_bodies_come_whole_and_in_order_however_they_are_cut(seed):
    """No end of a request lies within what the parser gets at once: it would be taken for no HTTP."""
    choose = random.Random(seed)
    expected = [choose.choice(BODIES) for _ in range(40)]
    sent = b"".join(choose.choice(written(body)) + choose.choice([b"", b"\r\n"]) for body in expected) + LAST
    got: list[bytes | None] = []

    async def app(_scope, receive, send):
        got.append(await body_of(receive))
        await send(ANSWER)
        await send(END)

    with serving_asgi(app) as server, connected(server) as connection:
        at = 0
        while at < len(sent):
            size = choose.choice([1, 2, 3, 50, 1000, 100_000])
            connection.sendall(sent[at : at + size])
            at += size
        everything(connection)
    assert got == [*expected, b""]


def test_a_request_may_come_byte_by_byte(front):
    with connected(front) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in 3 * GET + LAST:
            connection.sendall(bytes([byte]))
        assert everything(connection).count(b"HTTP/1.1 200 ") == 4


def test_many_small_headers_are_too_many(front, answered):
    """Each costs more than its bytes."""
    lines = b"a:\r\n" * (HEADER_LIMIT // 32)
    with connected(front, GET[:-2] + lines + b"\r\n") as connection:
        answer = everything(connection)
    assert status_of(answer) == 431
    answered(text_of(answer), HeadersTooLarge(limit=HEADER_LIMIT))


def test_empty_lines_do_not_keep_a_connection(front, answered):
    """After its first request, it was kept for as long as they came."""
    with connected(front, GET) as connection:
        assert connection.recv(1 << 16)
        began, answer = time.monotonic(), b""
        connection.settimeout(SECONDS / 10)
        while not answer and time.monotonic() < began + 20:
            connection.sendall(b"\r\n")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(1 << 16)
    assert status_of(answer) == 408
    answered(text_of(answer), RequestTooSlow(part="head", seconds=SECONDS))


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: " + b"9" * 5000,
        b"Content-Length: " + b"0" * 5000,  # 500, with a traceback
        b"Content-Length: -1",
        b"Content-Length: +1",
        b"Content-Length: 1, 1",
        b"Content-Length: 0x1",
        b"Content-Length: ",
        b"Content-Length: 1\r\nContent-Length: 1",
        b"Content-Length: 1\r\nContent-Length: 2",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 1",
    ],
)
def test_a_body_of_unclear_length(front, answered, lines):
    with connected(front, b"POST /predictions HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n\r\n") as connection:
        answer = everything(connection)
    assert status_of(answer) == 400
    answered(text_of(answer), BodyLengthInvalid())


@pytest.mark.parametrize("hosts", [0, 2])
def test_a_request_has_one_host(front, answered, hosts):
    lines = b"Host: x\r\n" * hosts
    with connected(front, b"GET / HTTP/1.1\r\n" + lines + b"\r\n") as connection:
        answer = everything(connection)
    assert status_of(answer) == 400
    answered(text_of(answer), HostHeaderInvalid(count=hosts))


def test_old_clients_need_no_host(front):
    with connected(front, b"GET / HTTP/1.0\r\n\r\n") as connection:
        assert status_of(everything(connection)) == 200


def test_no_piece_leads_behind_the_end_of_a_request(monkeypatch):
    """Were a boundary missed, the rest would not be taken for a second request."""
    monkeypatch.setattr(pipelining, "_BLANK_LINE", b"never")

    async def app(_scope, _receive, send):
        await send(ANSWER)
        await send(END)

    with serving_asgi(app) as server, connected(server, GET + GET) as connection:
        assert everything(connection).count(b"HTTP/1.1 200 ") == 0
    assert len(server.refused) == 1
