"""Which bodies are read at all."""

from __future__ import annotations

import json
import socket
import time

import httpx2
import pytest

from shared.errors import ContentEncodingNotSupported, ContentTypeWrong
from tests.support.front import running

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
def http(engine_directory):
    with (
        running(engine_directory, OPERATOR_KEY="operator-key") as front,
        httpx2.Client(base_url=front.url, timeout=20) as client,
    ):
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
