"""Which bodies are read at all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest

from runner.front import bodies as module
from shared.errors import (
    BodiesTooLarge,
    BodyNotParsed,
    ContentEncodingNotSupported,
    ContentTypeWrong,
    TooManyValues,
)
from tests.support.front import ASYNC, running
from tests.support.waiting import wait_for

JSON = {"content-type": "application/json"}
COMPLETION = b'{"prompt": "a", "max_tokens": 1}'
OPERATOR = {"authorization": "Bearer operator-key"}
BODIES = {
    "/predictions": b'{"input": {"prompt": "a", "max_tokens": 1}}',
    "/v1/completions": COMPLETION,
    "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "1"}], "max_tokens": 1}',
    "/tokenize": b'{"prompt": "a"}',
    "/detokenize": b'{"tokens": [1]}',
    "/v1/load_lora_adapter": b'{"lora_name": "a", "lora_path": "a"}',
    "/v1/unload_lora_adapter": b'{"lora_name": "a"}',
}


@pytest.fixture(scope="module")
def front(engine_directory):
    with running(engine_directory, OPERATOR_KEY="operator-key") as front:
        yield front


@pytest.fixture(scope="module")
def http(front):
    with httpx2.Client(base_url=front.url, timeout=60) as client:
        yield client


def post(http, path, body, headers):
    return http.post(path, content=body, headers=OPERATOR | headers)


def message_of(answer):
    error = answer.json()["error"]
    return error if isinstance(error, str) else error["message"]


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json", None])
def test_a_body_that_is_not_said_to_be_json_is_refused(http, answered, path, kind):
    """A web page may have a browser send text and forms to any address, without a question."""
    answer = post(http, path, BODIES[path], {} if kind is None else {"content-type": kind})
    assert answer.status_code == 415
    answered(message_of(answer), ContentTypeWrong(sent=kind or "missing"))


@pytest.mark.parametrize("path", BODIES)
def test_a_compressed_body_is_refused_by_the_name_of_its_encoding(http, answered, path):
    answer = post(http, path, BODIES[path], JSON | {"content-encoding": "gzip"})
    assert answer.status_code == 415
    answered(message_of(answer), ContentEncodingNotSupported(encoding="gzip"))


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "Application/JSON; charset=utf-8"},
        {"content-type": "application/vnd.api+json"},
        JSON | {"content-encoding": "identity"},
    ],
)
def test_what_is_json_is_read(http, headers):
    assert post(http, "/v1/completions", COMPLETION, headers).status_code == 200


def test_who_leaves_takes_the_conversation_along(http):
    """They were rendered one after the other, before anybody else's."""
    body = json.dumps({"messages": [{"role": "user", "content": "for ever"}]}).encode()
    head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for _ in range(5):
        with socket.create_connection((http.base_url.host, http.base_url.port)) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    time.sleep(0.2)
    started = time.monotonic()
    answer = post(http, "/tokenize", b'{"messages": [{"role": "user", "content": "1"}]}', JSON)
    assert (answer.status_code, time.monotonic() - started < 6) == (200, True)


@pytest.mark.parametrize("path", BODIES)
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(http, answered, path):
    """One of 16 MiB stopped the event loop for 1.5 s."""
    answer = post(http, path, b"[" + b"[]," * module.MAX_VALUES + b"[]]", JSON)
    assert answer.status_code == 413
    answered(message_of(answer), TooManyValues(limit=module.MAX_VALUES))


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("depth", [200, 1000, 10_000, 1_000_000])
def test_a_deep_body_is_refused(http, path, depth):
    deep = b"[" * depth + b"]" * depth
    for body in (deep, BODIES[path].rstrip(b"}") + b', "chat_template_kwargs": {"a": ' + deep + b"}}"):
        assert post(http, path, body, JSON).status_code in (200, 400, 422)


def longest_turn(front, ask):
    """The most CPU time that the event loop spends at once while `ask` runs."""
    turns = []

    async def watch():
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            turns.append(now - last)
            last = now

    watching = asyncio.run_coroutine_threadsafe(watch(), front.loop)
    try:
        ask()
    finally:
        watching.cancel()
    return max(turns)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/predictions", b"[" + b"[]," * 700_000 + b"[]]", 422),
        ("/predictions", b'{"input": {"messages": "[' + b"[]," * 700_000 + b'[]]"}}', 200),
        ("/tokenize", b'{"messages": [' + b"[]," * 700_000 + b"[]]}", 400),
        ("/detokenize", b'{"tokens": [' + b"12," * 500_000 + b"12]}", 200),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": "1"}], "max_tokens": 1, "chat_template_kwargs": {"a": ['
            + b"[]," * 700_000
            + b"[]]}}",
            200,
        ),
        (
            "/tokenize",
            b'{"messages": [' + b'{"role": "user", "content": "1"},' * 16_383 + b'{"role": "user", "content": "1"}]}',
            200,
        ),
    ],
    ids=["lists", "lists in text", "messages that are lists", "half a million tokens", "arguments", "messages"],
)  # fmt: skip
def test_the_event_loop_does_not_parse_large_bodies(front, http, path, body, status):
    def ask():
        assert post(http, path, body, JSON).status_code == status

    ask()  # it starts the process
    assert longest_turn(front, ask) < 0.02


def test_what_a_large_body_lacks_is_told_as_of_a_small_one(http):
    large = json.dumps({"prompt": "a", "max_tokens": 1, "user": "x" * (1 << 20), "n": 500}).encode()
    answer = post(http, "/v1/completions", large, JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "n"
    large = json.dumps({"input": {"prompt": "a" * (1 << 20), "max_tokns": 1}}).encode()
    answer = post(http, "/predictions", large, JSON)
    assert answer.status_code == 422
    assert "did you mean" in answer.json()["detail"][0]["msg"]


def test_a_large_prompt_of_token_ids_is_answered(http):
    body = json.dumps({"prompt": [5] * 20_000, "max_tokens": 2}).encode()
    answer = post(http, "/v1/completions", body, JSON)
    assert answer.json()["usage"]["prompt_tokens"] == 20_000


def test_what_a_process_dies_of_fails_alone(front, http, answered):
    large = json.dumps({"prompt": "a", "user": "x" * (1 << 20)}).encode()
    process = front.front._bodies._process
    assert post(http, "/tokenize", large.replace(b"user", b"model"), JSON).status_code == 404
    os.kill(process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(post, http, "/v1/completions", large, JSON)
        wait_for(lambda: process._asked)
        os.kill(process.pid, signal.SIGKILL)
        answer = waiting.result()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    answered(message_of(answer), BodyNotParsed(reason="its process has died of it"))
    assert post(http, "/v1/completions", large, JSON).status_code == 200


def test_who_leaves_takes_a_large_body_along(front, http):
    """The end of a client was not seen after a body of more than 64 KiB."""
    large = json.dumps({"prompt": "a", "model": "x" * (1 << 20)}).encode()
    assert post(http, "/tokenize", large, JSON).status_code == 404
    head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    process = front.front._bodies._process
    os.kill(process.pid, signal.SIGSTOP)
    try:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", front.port)) as connection:
                connection.sendall(f"{head}Content-Length: {len(large)}\r\n\r\n".encode() + large)
        wait_for(lambda: process._asked)
        wait_for(lambda: not front.front.admission.count and front.front._bodies._queue._count == 1)
    finally:
        os.kill(process.pid, signal.SIGCONT)


def test_one_that_takes_too_long_is_given_up(engine_directory, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 1.0)
    large = json.dumps({"prompt": "a", "max_tokens": 1, "user": "x" * (1 << 20)}).encode()
    with running(engine_directory) as front, httpx2.Client(base_url=front.url, timeout=60) as http:
        assert post(http, "/v1/completions", large, JSON).status_code == 200
        os.kill(front.front._bodies._process.pid, signal.SIGSTOP)
        answer = post(http, "/v1/completions", large, JSON)
        assert answer.status_code == 503
        assert message_of(answer) == str(BodyNotParsed(reason="that takes more than 1 s"))


class TestBytesThatAreReceived:
    """2,048 connections could hold 32 GiB."""

    @pytest.fixture
    def small(self, engine_directory, monkeypatch):
        monkeypatch.setattr(module, "RECEIVED_BYTES", 0)
        with running(engine_directory, MAX_BODY_BYTES="200000") as front:
            yield front

    def begun(self, front, size):
        head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 190000\r\n\r\n"
        connection = socket.create_connection(("127.0.0.1", front.port), timeout=20)
        connection.sendall(head.encode() + b" " * size)
        return connection

    def test_they_are_bounded_and_small_bodies_come_through(self, small, answered):
        shares = small.front._bodies._received
        assert shares.limit == 800_000
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(self.begun(small, 150_000))
            wait_for(lambda: shares._taken == 3 * (190_000 - (1 << 16)))
            with self.begun(small, 150_000) as refused:
                answer = refused.makefile("rb").readline()
                assert answer.startswith(b"HTTP/1.1 503 ")
            with httpx2.Client(base_url=small.url, timeout=20) as http:
                assert (
                    post(http, "/tokenize", b'{"prompt": "' + b"1 " * 30_000 + b'"}', JSON).status_code == 200
                )
                answer = post(http, "/tokenize", b'{"prompt": "' + b"1 " * 80_000 + b'"}', JSON)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
                answered(message_of(answer), BodiesTooLarge(limit=800_000))
        wait_for(lambda: shares._taken == 0)


class TestPlaces:
    def test_a_body_is_not_parsed_where_there_is_no_place(self, engine_directory):
        with (
            running(engine_directory, MAX_PREDICTIONS="1") as front,
            httpx2.Client(base_url=front.url, timeout=20) as http,
        ):
            assert (
                http.post("/predictions", json={"input": {"prompt": "4"}}, headers=ASYNC).status_code == 202
            )
            for path in list(BODIES)[:5]:
                answer = post(http, path, b"no JSON", JSON)
                assert (answer.status_code, message_of(answer)[:5]) == (429, "E2106")

    def test_tokens_count_as_predictions_of_a_key_while_they_are_made(self, engine_directory):
        body = {"messages": [{"role": "user", "content": "for ever"}]}
        with (
            running(engine_directory, API_KEYS="key", KEY_MAX_REQUESTS="1") as front,
            httpx2.Client(base_url=front.url, headers={"authorization": "Bearer key"}, timeout=20) as http,
            ThreadPoolExecutor(1) as other,
        ):
            waiting = other.submit(http.post, "/tokenize", json=body)
            wait_for(lambda: front.front.admission.count)
            for path in list(BODIES)[1:5]:
                answer = http.post(path, content=BODIES[path], headers=JSON)
                assert (answer.status_code, message_of(answer)[:5]) == (429, "E1305")
            assert waiting.result().status_code == 400
            assert http.post("/tokenize", json={"prompt": "a"}).status_code == 200
            assert front.front.admission.count == 0
