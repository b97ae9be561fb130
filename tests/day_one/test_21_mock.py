"""Load tests without a GPU: how fast the mock answers, and whether it fails, is said in each request."""

from __future__ import annotations

import pytest

from tests.day_one.conftest import PREDICT, serve_mock


@pytest.fixture(scope="module", autouse=True)
def served(user):
    serve_mock(user, "engine: mock\ntokens_per_second: 1000\n")


def test_a_request_has_a_rate_and_a_time_to_its_first_token(user):
    prompt = "<tokens_per_second> 20 <time_to_first_token_ms> 500 Hello"
    answer = user.types(PREDICT + f"""'{{"input": {{"prompt": "{prompt}", "max_tokens": 11}}}}'""").json
    metrics = answer["metrics"]
    assert answer["status"] == "succeeded"
    assert metrics["output_token_count"] == 11
    assert 0.5 <= metrics["time_to_first_token"] < 5
    assert metrics["tokens_per_second"] <= 20.5
    assert metrics["predict_time"] >= 1


def test_another_one_is_not_slowed_down(user):
    metrics = user.types(PREDICT + """'{"input": {"prompt": "Hello", "max_tokens": 100}}'""").json["metrics"]
    assert metrics["tokens_per_second"] > 20.5
    assert metrics["predict_time"] >= metrics["time_to_first_token"]


def test_a_request_fails_when_it_says_so(user):
    answer = user.types(PREDICT + """'{"input": {"prompt": "<error> Hello", "max_tokens": 10}}'""").json
    assert answer["status"] == "failed"
    assert answer["error_code"] == "E2405"
    assert "".join(answer["output"]) == "0 1 2 3 4"


def test_a_rate_that_is_missing_is_told(user):
    answer = user.types(PREDICT + """'{"input": {"prompt": "<tokens_per_second> fast"}}'""").json
    assert answer["error"].startswith("E1104 InvalidArgument: tokens_per_second is missing, but ")
