"""From a config to a prediction, with the commands of the README."""

from __future__ import annotations


def test_a_config_is_written_and_checked(user):
    user.types("cog-triton init config.yaml --engine ctranslate2 --model HuggingFaceTB/SmolLM2-135M-Instruct")
    assert "0 errors" in user.types("cog-triton check config.yaml").text


def test_an_engine_is_built(user):
    user.types("cog-triton build config.yaml -o engine.tar")
    assert "ctranslate2" in user.types("cog-triton inspect engine.tar").text


def test_it_is_served(user):
    user.starts("cog-triton serve engine.tar --port $PORT", "localhost:$PORT/health-check", says="READY")


def test_a_prediction_is_one_document(user):
    answer = user.types(
        "curl -s localhost:$PORT/predictions -H 'Content-Type: application/json'"
        """ -d '{"input": {"prompt": "Once upon a time,", "max_tokens": 16}}'"""
    ).json
    assert answer["status"] == "succeeded"
    assert "".join(answer["output"])


def test_or_a_stream_of_events(user):
    events = user.types(
        "curl -sN localhost:$PORT/predictions -H 'Accept: text/event-stream' -H 'Content-Type: application/json'"
        """ -d '{"input": {"prompt": "Once upon a time,", "max_tokens": 16}}'"""
    ).events
    assert events[0]["status"] == "processing"
    assert "".join(event.get("chunk", "") for event in events)
    assert events[-1]["status"] == "succeeded"
