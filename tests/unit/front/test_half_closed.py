"""Clients that end their side of a connection: some wait for their answer, most have gone."""

from __future__ import annotations

import json
import socket
import ssl
import time

import pytest

from tests.support.files import CERTIFICATE
from tests.support.front import running
from tests.support.raw_http import connected, everything, head
from tests.support.waiting import wait_for

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
HANGS = "4"


@pytest.fixture(scope="module")
def front(engine_directory):
    with running(engine_directory, step_seconds=0.02, ACCEPT_ANY_MODEL="true") as server:
        yield server


def completion(prompt: str, stream: bool) -> bytes:
    body = json.dumps({"model": "any", "prompt": prompt, "stream": stream, "max_tokens": 20}).encode()
    return head(len(body), "/v1/completions") + body


def all_answers(front, sent: bytes) -> bytes:
    """What a client gets that sends this, and ends its side."""
    with connected(front, sent) as connection:
        connection.shutdown(socket.SHUT_WR)
        return everything(connection)


def test_an_answer_is_complete(front):
    """Nothing came."""
    interim, _, answer = all_answers(front, completion("a", stream=False)).rpartition(INTERIM)
    status, _, body = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 200 OK\r\n")
    assert len(json.loads(body)["choices"][0]["text"].split()) == 20
    assert interim.replace(INTERIM, b"") == b""


def test_a_stream_is_complete(front):
    answer = all_answers(front, completion("a", stream=True)).replace(INTERIM, b"")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.count(b'"text":') >= 20
    assert answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_requests_in_a_row_are_all_answered(front):
    sent = completion("a", stream=True) + completion("b", stream=False) + GET
    assert all_answers(front, sent).count(b"HTTP/1.1 200 OK\r\n") == 3


def test_nothing_is_lost_of_an_answer_that_was_ready(front):
    for _ in range(200):
        assert all_answers(front, GET).count(b"HTTP/1.1 200 OK\r\n") == 1


def old(stream: bool, prompt: str = "a") -> bytes:
    return completion(prompt, stream).replace(b"HTTP/1.1", b"HTTP/1.0")


def test_an_old_client_gets_its_stream_without_chunks(front):
    with connected(front, old(stream=True)) as connection:
        answer = connection.recv(1 << 16)
        connection.shutdown(socket.SHUT_WR)
        answer += everything(connection)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\n\ndata: [DONE]\n\n")


def test_the_end_of_an_old_client_ends_its_prediction(front):
    """It would not understand an interim answer; nginx talks HTTP/1.0 unless told otherwise."""
    assert all_answers(front, old(stream=False, prompt=HANGS)) == b""
    wait_for(lambda: not front.client.in_flight, seconds=5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_gone_ends_its_prediction(front, stream):
    """Though nothing is written to it: its prediction hangs."""
    with connected(front, completion(HANGS, stream)):
        wait_for(lambda: front.client.in_flight)
    wait_for(lambda: not front.client.in_flight, seconds=5)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_first_waits_and_then_goes_ends_its_prediction(front, stream):
    with connected(front, completion(HANGS, stream)) as connection:
        connection.shutdown(socket.SHUT_WR)
        wait_for(lambda: front.client.in_flight)
        time.sleep(0.5)
        assert front.client.in_flight
    wait_for(lambda: not front.client.in_flight, seconds=15)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", head(9) + b"{"])
def test_half_a_request_is_not_waited_for(front, begun):
    began = time.monotonic()
    assert all_answers(front, begun) == b""
    assert time.monotonic() < began + 5


@pytest.mark.parametrize("says_so", [False, True])
def test_over_tls_the_end_of_a_client_is_the_end_of_its_prediction(engine_directory, says_so):
    """With close_notify, and without."""
    tls = {"TLS_CERTIFICATE": str(CERTIFICATE), "TLS_KEY": str(CERTIFICATE)}
    context = ssl._create_unverified_context()
    with (
        running(engine_directory, ACCEPT_ANY_MODEL="true", **tls) as front,
        socket.create_connection(("127.0.0.1", front.port), timeout=20) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(completion(HANGS, stream=False))
        wait_for(lambda: front.client.in_flight)
        if says_so:
            connection.unwrap()
        else:
            connection.close()
        wait_for(lambda: not front.client.in_flight, seconds=15)
