"""Predictions through Cog and Triton, with the mock engine."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from demo.cog_client import PredictionClient
from shared.errors import (
    ChatTemplateMissing,
    InputInvalid,
    Overloaded,
)
from tests.integration.conftest import cog_server, counted
from tests.support.load import run_streams
from tests.support.processes import pid_of
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def server(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("runner")
    environment = {
        "COG_WEIGHTS": str(mock_archive(tokens_per_second=100)),
        "WEIGHTS_CACHE": str(directory / "weights"),
        "SYSTEM_PROMPT": "be brief",
        "RESPONSE_TIMEOUT": "2",
        "MAX_PREDICTIONS": "64",
    }
    with cog_server("runner", directory / "log", concurrency=160, **environment) as server:
        yield server


@pytest.fixture
def client(server):
    return PredictionClient(server.url)


def test_64_streams_get_exactly_their_tokens_while_they_are_generated(server):
    inputs = [{"prompt": f"stream {number}", "max_tokens": 512} for number in range(64)]
    streams = run_streams(server.url, inputs)
    for stream in streams:
        assert stream.result["status"] == "succeeded"
        assert stream.text == counted(512)
        assert stream.result["metrics"]["output_token_count"] == 512
        first = stream.chunks[0][0] - stream.sent_at
        assert first < 0.1 * (stream.ended_at - stream.sent_at)


def test_a_plain_post_returns_all_chunks(client):
    answer = client.predict({"prompt": "one two three", "max_tokens": 5})
    assert "".join(answer["output"]) == counted(5)
    assert answer["metrics"]["input_token_count"] == 3
    assert answer["metrics"]["output_token_count"] == 5


def test_the_text_ends_before_a_stop_sequence_and_the_engine_stops(client):
    started = time.monotonic()
    text = "".join(client.text({"prompt": "x", "max_tokens": 3000, "stop_sequences": "9 10,zzz"}))
    assert text == "0 1 2 3 4 5 6 7 8 "
    assert time.monotonic() - started < 15  # the mock would take 30 s for all tokens


def test_the_template_gets_the_prompt_and_the_default_system_prompt(client):
    answer = client.predict(
        {"prompt": "a b", "prompt_template": "{system_prompt} : {prompt}", "max_tokens": 1}
    )
    assert answer["metrics"]["input_token_count"] == 5


def test_old_names_still_work(client):
    answer = client.predict({"prompt": "x", "max_new_tokens": 3, "min_new_tokens": 1, "top_k": -1})
    assert "".join(answer["output"]) == counted(3)


@pytest.mark.parametrize(
    ("inputs", "error"),
    [
        ({"messages": '[{"role": "user", "content": "x"}]'}, ChatTemplateMissing),
        ({"prompt": "x", "max_tokens": 0}, InputInvalid),
    ],
)
def test_bad_inputs_are_coded_errors(client, inputs, error):
    with pytest.raises(error):
        client.predict(inputs)


def test_max_tokens_is_cut_to_what_the_engine_has_room_for(client):
    events = client.events({"prompt": "x " * 4090, "max_tokens": 3000})
    assert "".join(event.data["chunk"] for event in events if event.kind == "output") == counted(6)


def test_a_random_seed_is_told_and_can_be_sent_again(client):
    seed = client.predict({"prompt": "x", "max_tokens": 1})["metrics"]["seed"]
    assert client.predict({"prompt": "x", "max_tokens": 1, "seed": seed})["metrics"]["seed"] == seed
    assert client.predict({"prompt": "x", "max_tokens": 1, "seed": 0})["metrics"]["seed"] == 0


def test_a_prediction_too_many_is_refused_at_once(server, client, assert_fails):
    refused = []

    def one_more(_streams):
        full = Overloaded(limit=64, what="predictions are running or waiting", fix="raise MAX_PREDICTIONS")
        assert_fails(client, {"prompt": "x"}, "", full)
        refused.append(True)

    streams = run_streams(server.url, [{"prompt": "x", "max_tokens": 200}] * 64, during=one_more)
    assert refused
    assert {stream.text for stream in streams} == {counted(200)}


def test_leaving_the_stream_stops_the_engine(server, client):
    with httpx2.Client(base_url=server.url) as http:
        body = {"input": {"prompt": "x", "max_tokens": 5000}}
        with http.sse("/predictions", method="POST", json=body) as source:
            assert next(event for event in source if event.event == "output")
    wait_for(lambda: engine_is_idle(server))


def test_dropping_a_plain_post_stops_the_engine(server):
    address = urlsplit(server.url)
    body = json.dumps({"input": {"prompt": "x", "max_tokens": 4000}}).encode()
    head = f"POST /predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(head.encode() + body)
        wait_for(lambda: not engine_is_idle(server))
    wait_for(lambda: engine_is_idle(server))


def test_cancel_by_id_ends_the_prediction(server, client):
    for event in client.events({"prompt": "x", "max_tokens": 5000}):
        if event.kind == "start":
            prediction = event.data["id"]
        if event.kind == "output" and event.data["index"] == 3:
            answer = httpx2.post(f"{server.url}/predictions/{prediction}/cancel")
            assert answer.status_code == 200
    assert event.data["status"] == "canceled"
    wait_for(lambda: engine_is_idle(server))


def engine_is_idle(server) -> bool:
    """Whether the process of the engine uses no time: the mock sleeps when it has no request."""
    pid = pid_of(server.mark, "runner.engines.process")

    def ticks() -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    time.sleep(0.5)
    return ticks() == before
