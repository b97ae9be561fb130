"""Every error that a request is answered with is counted once, whether or not it had become a prediction."""

from __future__ import annotations

import socket
from collections import Counter

import httpx2
import pytest

from tests.support.front import running

KEY = {"authorization": "Bearer secret-key"}
JSON = {"content-type": "application/json"}


@pytest.fixture
def front(engine_directory):
    with running(engine_directory, API_KEYS="secret-key", MAX_BODY_BYTES="1000") as server:
        yield server


def post(front, path, **options):
    return httpx2.post(f"{front.url}{path}", **options).status_code


def errors(front):
    return front.front.metrics.errors()


@pytest.mark.parametrize(
    ("path", "options", "status", "code"),
    [
        ("/v1/completions", {"json": {"prompt": "1"}}, 401, "E1304"),
        ("/v1/completions", {"content": b"x" * 1001, "headers": KEY | JSON}, 413, "E1320"),
        ("/v1/completions", {"content": b"{", "headers": KEY | JSON}, 400, "E1300"),
        ("/v1/nothing", {"headers": KEY}, 404, "E1306"),
        ("/tokenize", {"json": {"messages": [{"role": "user", "content": "for ever"}]}, "headers": KEY}, 400, "E1005"),
        ("/predictions", {"content": b"x" * 1001, "headers": JSON}, 413, "E1320"),
        ("/predictions", {"content": b"{}"}, 415, "E1336"),
        ("/predictions", {"content": b"{", "headers": JSON}, 400, "E1321"),
        ("/predictions", {"json": {"input": {"top_p": 2}}}, 422, "E1322"),
        ("/predictions", {"json": {"input": {"prompt": "1", "min_tokens": 1, "min_new_tokens": 1}}}, 200, "E1101"),
        ("/tokenize", {"content": b"{}", "headers": KEY | JSON | {"content-encoding": "gzip"}}, 415, "E1337"),
        ("/predictions/x/cancel", {}, 404, "E1324"),
    ],
)  # fmt: skip
def test_what_never_becomes_a_prediction(front, path, options, status, code):
    assert post(front, path, **options) == status
    assert errors(front) == Counter({code: 1})


def test_what_is_no_request(front):
    with socket.create_connection(("127.0.0.1", front.port), 5) as connection:
        connection.sendall(b"hello\r\n\r\n")
        assert b"E1331" in connection.makefile("rb").read()
    assert errors(front) == Counter({"E1331": 1})


def test_before_there_is_an_engine(engine_directory):
    with running(engine_directory, loaded=False) as front:
        assert post(front, "/predictions", json={"input": {"prompt": "1"}}) == 503
        assert post(front, "/v1/completions", json={"prompt": "1"}) == 503
        assert errors(front) == Counter({"E2401": 2})


@pytest.mark.parametrize("stream", [True, False])
def test_what_a_prediction_ended_with_is_not_counted_again(front, stream):
    sent = {"prompt": "3", "max_tokens": 4, "stream": stream}
    post(front, "/v1/completions", json=sent, headers=KEY)
    accept = {"accept": "text/event-stream" if stream else "*/*"}
    post(front, "/predictions", json={"input": {"prompt": "3", "max_tokens": 4}}, headers=accept)
    post(front, "/predictions", json={"input": {"prompt": ""}}, headers=accept)
    post(front, "/v1/completions", json={"prompt": "", "stream": stream}, headers=KEY)
    assert errors(front) == Counter({"E2405": 2, "E1001": 2})


def test_a_runner_that_is_full_counts_each_refusal_once(engine_directory):
    prediction = {"input": {"prompt": "4"}}
    with running(engine_directory, MAX_PREDICTIONS="1") as front:
        assert post(front, "/predictions", json=prediction, headers={"prefer": "respond-async"}) == 202
        assert post(front, "/predictions", json=prediction) == 429
        assert post(front, "/v1/completions", json={"prompt": "1"}) == 429
        assert errors(front) == Counter({"E2106": 2})
