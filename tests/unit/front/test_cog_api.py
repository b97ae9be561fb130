"""Cog's HTTP API, with an engine that steps by a clock."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import httpx2
import pytest

from shared.errors import (
    BodyNotRead,
    InputInvalid,
    PredictionIdInvalid,
    PredictionIdTaken,
    PredictionNotFound,
    PreparationTimedOut,
)
from tests.support.fake_engine_client import EVERYTHING
from tests.support.front import ASYNC, EVENTS, running, wait_ended, words

SPEED = ("time_to_first_token", "tokens_per_second", "predict_time")


@pytest.fixture
def client(front):
    with httpx2.Client(base_url=front.url, timeout=20) as client:
        yield client


def events_of(answer) -> list[tuple[str, dict]]:
    """The events in a body."""
    found = []
    for block in answer.text.strip().split("\n\n"):
        kind, data = block.split("\n")
        found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def predict(client, *, headers=None, **inputs):
    return client.post("/predictions", json={"input": {"prompt": "a", **inputs}}, headers=headers)


def test_a_prediction_as_json(client):
    answer = predict(client, max_tokens=3)
    assert answer.status_code == 200
    view = answer.json()
    assert "".join(view["output"]) == words(3)
    assert view["status"] == "succeeded"
    metrics = view["metrics"]
    assert set(metrics) == {"input_token_count", "output_token_count", "seed", *SPEED}
    assert 0 < metrics["time_to_first_token"] < metrics["predict_time"]
    generating = metrics["predict_time"] - metrics["time_to_first_token"]
    assert metrics["tokens_per_second"] >= 2 / (generating + 0.002)  # a clock has whole milliseconds


def test_a_single_token_has_no_rate(client):
    metrics = predict(client, max_tokens=1).json()["metrics"]
    assert "tokens_per_second" not in metrics
    assert metrics["time_to_first_token"] > 0


def test_what_fails_has_its_code_as_a_field(client):
    failed = predict(client, prompt=" ").json()
    assert failed["error"].startswith("E1001 PromptRequired: ")
    assert failed["error_code"] == "E1001"
    refused = predict(client, max_tokens=0)
    assert refused.json()["error_code"] == "E1322"


def test_inputs_beside_input_are_not_taken_for_an_empty_prompt(client):
    """Who forgot `input` was told to send a prompt that is not blank."""
    refused = client.post("/predictions", json={"prompt": "a", "max_tokens": 3})
    assert refused.status_code == 422
    assert [fault["loc"] for fault in refused.json()["detail"]] == [
        ["body", "max_tokens"],
        ["body", "prompt"],
    ]
    assert 'prompt: inputs are sent in `input`: {"input": {"prompt": ...}}' in str(
        client.post("/predictions", json={"prompt": "a"}).json()
    ).replace("\\'", "'")


def test_an_engine_to_which_seeds_cost_something_gets_none(engine_directory):
    with running(engine_directory, declaration=replace(EVERYTHING, seeds=False)) as server:
        answer = httpx2.post(f"{server.url}/predictions", json={"input": {"prompt": "a", "max_tokens": 1}})
        assert "seed" not in answer.json()["metrics"]
        assert server.client.requests[-1].sampling.seed is None


def test_a_prediction_as_an_event_stream(client):
    answer = predict(client, headers=EVENTS, max_tokens=3)
    assert answer.headers["content-type"] == "text/event-stream"
    events = events_of(answer)
    assert [kind for kind, _ in events] == [
        "start",
        "metric",
        "metric",
        *["output"] * 3,
        *["metric"] * 3,
        "completed",
    ]
    assert [data for kind, data in events if kind == "output"] == [
        {"chunk": "95", "index": 0},
        {"chunk": " 96", "index": 1},
        {"chunk": " 97", "index": 2},
    ]
    assert 'data: {"chunk":' in answer.text  # the first field: load clients read it so
    assert events[-1][1]["output"] == ["95", " 96", " 97"]


NO_WHOLE = 'is not of type "integer"'
NO_OBJECT = 'is not of type "object"'


@pytest.mark.parametrize(
    ("body", "place", "reason"),
    [
        (
            {"input": {"max_tokenz": 1}},
            "input.max_tokenz",
            'there is no such input (did you mean "max_tokens"?)',
        ),
        ({"input": {"max_tokens": "x"}}, "input.max_tokens", f'"x" {NO_WHOLE}'),
        ({"input": {"max_tokens": True}}, "input.max_tokens", f"true {NO_WHOLE}"),
        ({"input": {"max_tokens": 0}}, "input.max_tokens", "0 is less than the minimum of 1"),
        ({"input": {"temperature": 9}}, "input.temperature", "9 is greater than the maximum of 5"),
        ({"input": [1]}, "input.__root__", f"[1] {NO_OBJECT}"),
        ([], "", f"[] {NO_OBJECT}"),
        ({"webhook": 5}, "webhook", '5 is not of type "string"'),
        (
            {"webhook_events_filter": ["bogus"]},
            "webhook_events_filter",
            "it must be a list of start, output, logs, completed",
        ),
    ],
)
def test_a_body_that_breaks_the_schema_names_the_place(client, answered, body, place, reason):
    answer = client.post("/predictions", json=body)
    assert answer.status_code == 422
    assert answer.json()["detail"] == [
        {"loc": ["body", *filter(None, place.split("."))], "msg": reason, "type": "value_error"}
    ]
    answered(answer.json()["error"], InputInvalid(where=place or "the body", reason=reason))


@pytest.mark.parametrize("name", ["", " ", "\x1b", " top_p"])
def test_a_name_that_cannot_be_seen_is_quoted(client, name):
    error = predict(client, **{name: 1}).json()["error"]
    assert f"input.{name!r}: there is no such input" in error


def test_every_fault_is_told(client):
    answer = predict(client, max_tokens=0, temperature=9, nonsense=1)
    assert len(answer.json()["detail"]) == 3


def test_of_many_faults_some_are_told(client):
    answer = predict(client, **{"x" * 1000 + str(number): 1 for number in range(5000)})
    assert answer.status_code == 422
    assert len(answer.json()["detail"]) == 20
    assert len(answer.content) < 20_000


def test_numbers_and_nulls_as_json_schema_has_them(client):
    assert predict(client, max_tokens=2.0, seed=None).json()["metrics"]["output_token_count"] == 2


def test_unknown_inputs_are_left_out_with_a_setting(engine_directory):
    with running(engine_directory, IGNORE_UNKNOWN_INPUTS="1") as server:
        answer = httpx2.post(
            f"{server.url}/predictions", json={"input": {"prompt": "a", "max_tokens": 1, "x": 1}}
        )
    assert answer.json()["output"] == ["95"]


@pytest.mark.parametrize(
    ("content", "kind", "status", "reason"),
    [
        (
            b"no json",
            "application/json",
            400,
            "it is not JSON: invalid literal, expected 'null': line 1 column 1 (char 0)",
        ),
        (b"[" * 5000 + b"]" * 5000, "application/json", 400, "it is nested too deeply"),
        (b'{"input":"\xff"}', "application/json", 400, "it is not UTF-8"),
    ],
)
def test_a_body_that_is_no_json(client, answered, content, kind, status, reason):
    answer = client.post("/predictions", content=content, headers={"content-type": kind})
    assert answer.status_code == status
    answered(answer.json()["error"], BodyNotRead(reason=reason))


def test_an_error_of_the_prompt_has_its_code(client):
    view = predict(client, prompt=" ").json()
    assert (view["status"], view["error"][:5]) == ("failed", "E1001")
    kind, data = events_of(predict(client, prompt=" ", headers=EVENTS))[-1]
    assert (kind, data["error"][:5]) == ("completed", "E1001")


def test_an_error_half_way_keeps_the_text(client):
    view = predict(client, prompt="3", max_tokens=4).json()
    assert view["status"] == "failed"
    assert view["error"].startswith("E2405 EngineInternalError: ")
    assert view["output"] == ["95", " 96"]


def test_a_stop_sequence_ends_the_text(client, front):
    view = predict(client, max_tokens=50, stop_sequences=" 98").json()
    assert "".join(view["output"]) == "95 96 97"
    assert view["metrics"]["output_token_count"] == 4
    assert front.client.in_flight == 0


def test_messages_go_through_the_chat_template(client):
    view = client.post(
        "/predictions",
        json={"input": {"messages": '[{"role": "user", "content": "hi there"}]', "max_tokens": 1}},
    ).json()
    assert view["metrics"]["input_token_count"] == 3


def test_a_chat_template_that_takes_too_long_fails_its_prediction_alone(client):
    body = {"input": {"messages": '[{"role": "user", "content": "for ever"}]'}}
    view = client.post("/predictions", json=body).json()
    assert view["error"].startswith("E1005 MessagesInvalid: ")
    assert "more than 2 s" in view["error"]
    test_messages_go_through_the_chat_template(client)


def test_a_long_prompt_is_tokenised_elsewhere(client):
    assert (
        predict(client, prompt="1 " * 10_000, max_tokens=1).json()["metrics"]["input_token_count"] == 10_000
    )


class TestIds:
    @pytest.mark.parametrize("wrong", ["../x", "a/b", "a\0b", "", "a" * 129, "ä", "a%2fb", ".."])
    def test_an_id_that_is_none(self, client, wrong):
        answer = client.post("/predictions", json={"id": wrong, "input": {"prompt": "a"}})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("E1323 PredictionIdInvalid: ")

    @pytest.mark.parametrize("wrong", ["%2e%2e%2fx", "a%00", "a" * 129])
    def test_an_id_in_the_path_that_is_none(self, client, answered, wrong):
        answer = client.put(f"/predictions/{wrong}", json={"input": {"prompt": "a"}})
        answered(answer.json()["error"], PredictionIdInvalid())

    def test_two_that_differ(self, client):
        answer = client.put("/predictions/one", json={"id": "other", "input": {"prompt": "a"}})
        assert answer.status_code == 422
        assert answer.json()["detail"][0]["msg"] == "prediction ID must match the ID supplied in the URL"

    def test_one_that_runs_is_not_begun_again(self, client, answered):
        body = {"input": {"prompt": "a", "max_tokens": 500}}
        first = client.put("/predictions/twice", json=body, headers=ASYNC)
        assert (first.status_code, first.json()) == (202, {"id": "twice", "status": "starting"})
        again = client.put("/predictions/twice", json=body)
        assert again.status_code == 202
        assert again.json()["input"] == body["input"]
        taken = client.post("/predictions", json={"id": "twice", **body})
        assert taken.status_code == 409
        answered(taken.json()["error"], PredictionIdTaken())
        client.post("/predictions/twice/cancel")


class TestAsynchronous:
    def test_it_can_be_asked_after(self, client):
        answer = client.post(
            "/predictions", json={"id": "later", "input": {"prompt": "a", "max_tokens": 5}}, headers=ASYNC
        )
        assert answer.status_code == 202
        view = wait_ended(client, "later")
        assert "".join(view["output"]) == words(5)
        assert view["created_at"] <= view["completed_at"]
        assert client.put("/predictions/later", json={"input": {}}).json() == view

    def test_its_events_can_be_had_later(self, client):
        client.put("/predictions/replay", json={"input": {"prompt": "a", "max_tokens": 100}}, headers=ASYNC)
        running = events_of(client.get("/predictions/replay", headers=EVENTS))
        ended = events_of(client.get("/predictions/replay", headers=EVENTS))
        assert running == ended
        assert "".join(data["chunk"] for kind, data in running if kind == "output") == words(100)

    def test_what_is_not_there(self, client, answered):
        for answer in (client.get("/predictions/nobody"), client.post("/predictions/nobody/cancel")):
            assert answer.status_code == 404
            answered(answer.json()["error"], PredictionNotFound())

    def test_only_so_many_are_kept(self, engine_directory):
        with (
            running(engine_directory, KEEP_PREDICTIONS="2") as server,
            httpx2.Client(base_url=server.url) as client,
        ):
            for name in ("one", "two", "three"):
                client.put(
                    f"/predictions/{name}", json={"input": {"prompt": "a", "max_tokens": 1}}, headers=ASYNC
                )
                wait_ended(client, name)
            assert client.get("/predictions/one").status_code == 404
            assert client.get("/predictions/two").status_code == 200

    def test_only_so_long(self, engine_directory):
        with running(engine_directory, KEEP_PREDICTIONS_SECONDS="0.1") as server:
            address = f"{server.url}/predictions/short"
            httpx2.put(address, json={"input": {"prompt": "a", "max_tokens": 1}}, headers=ASYNC)
            deadline = time.monotonic() + 20
            while httpx2.get(address).status_code == 200:
                assert time.monotonic() < deadline


class TestCancel:
    def wait_nothing_runs(self, front):
        deadline = time.monotonic() + 20
        while front.client.in_flight or front.front.admission.count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def test_by_a_call(self, client, front):
        body = {"input": {"prompt": "a", "max_tokens": 100_000}}
        client.put("/predictions/stop", json=body, headers=ASYNC)
        assert client.post("/predictions/stop/cancel").json() == {}
        assert wait_ended(client, "stop")["status"] == "canceled"
        self.wait_nothing_runs(front)

    def test_by_closing_an_event_stream(self, client, front):
        body = {"input": {"prompt": "a", "max_tokens": 100_000}}
        with client.stream("POST", "/predictions", json=body, headers=EVENTS) as answer:
            next(answer.iter_bytes())
        self.wait_nothing_runs(front)

    def test_by_closing_the_connection(self, front):
        body = {"input": {"prompt": "a", "max_tokens": 100_000}}
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(f"{front.url}/predictions", json=body, timeout=0.2)
        self.wait_nothing_runs(front)


class TestHealth:
    def test_ready(self, client):
        assert client.get("/health-check").json()["status"] == "READY"
        assert client.get("/health/live").status_code == client.get("/health/ready").status_code == 200
        assert client.get("/health/ready").json() == {"status": "READY", "front_restarts": 0}

    def test_starting(self, engine_directory):
        with running(engine_directory, loaded=False) as server, httpx2.Client(base_url=server.url) as client:
            assert client.get("/health-check").json()["status"] == "STARTING"
            assert client.get("/health/live").status_code == 200
            assert client.get("/health/ready").status_code == 503
            answer = predict(client)
            assert (answer.status_code, answer.json()["error"][:5]) == (503, "E2401")
            server.front.health.failed("E4201 WeightsNotFound: x")
            health = client.get("/health-check").json()
            assert (health["status"], health["setup"]["logs"]) == ("SETUP_FAILED", "E4201 WeightsNotFound: x")
            assert "is starting" not in predict(client).json()["error"]  # it never will

    def test_an_engine_that_died(self, engine_directory):
        with running(engine_directory) as server, httpx2.Client(base_url=server.url) as client:
            server.loop.call_soon_threadsafe(server.client.die)
            deadline = time.monotonic() + 20
            while client.get("/health-check").json()["status"] != "UNHEALTHY":
                assert time.monotonic() < deadline
            assert client.get("/health/ready").status_code == 503
            assert predict(client).status_code == 503


class TestOther:
    def test_the_index_names_what_there_is(self, client):
        index = client.get("/").json()
        for key, path in index.items():
            if key.endswith("_url") and "{" not in path:
                assert client.get(path).status_code in (200, 405)

    def test_the_schema(self, client):
        paths = client.get("/openapi.json").json()["paths"]
        assert paths["/predictions"]["post"]["x-cog-streaming"] is True

    def test_wrong_paths_and_methods(self, client):
        assert client.get("/nowhere").status_code == 404
        answer = client.delete("/predictions")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")

    def test_metrics(self, client):
        predict(client, max_tokens=1)
        text = client.get("/metrics").text
        assert 'cog_triton_predictions_total{outcome="succeeded"}' in text

    def test_head(self, client):
        assert client.head("/health-check").status_code == 200

    def test_shutdown_is_not_there(self, client):
        assert client.post("/shutdown").status_code == 404


def test_a_prompt_that_takes_too_long_to_prepare(client, answered, monkeypatch):
    monkeypatch.setattr("runner.prediction.tokenising._SECONDS", 0)
    answer = client.post("/predictions", json={"input": {"prompt": "a " * 200_000, "max_tokens": 1}})
    answered(answer.json()["error"], PreparationTimedOut(seconds=0))
