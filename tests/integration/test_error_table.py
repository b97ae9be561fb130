"""What each error of a prediction looks like over HTTP: its exact text, and the answer before it in an event stream.

`pytest --all-errors-met` fails when an error that a request can meet is not among these, nor in another test of
this kind (the fixture `assert_fails`).
"""

from __future__ import annotations

from collections import Counter

import pytest

from demo.cog_client import PredictionClient
from shared.errors import (
    BadPromptTemplate,
    CogTritonError,
    EngineInternalError,
    EngineNotReady,
    EngineProcessDied,
    InvalidArgument,
    InvalidArgumentMaxTokens,
    InvalidArgumentMinTokens,
    MessagesInvalid,
    PromptRequired,
    PromptTemplateError,
    PromptTooLong,
    StructuredOutputInvalid,
    TritonTimeout,
    from_text,
)
from tests.integration.conftest import cog_server, unpacked
from tests.support.waiting import wait_for

MAX_SEQ_LEN = 64
CHAT = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}{{ raise_exception('no') if messages|length > 2 }}"


def user(*contents: str) -> str:
    return str([{"role": "user", "content": content} for content in contents]).replace("'", '"')


TABLE = [
    ({}, "", PromptRequired()),
    ({"prompt": " "}, "", PromptRequired()),
    ({"prompt": "x " * 64}, "", PromptTooLong(prompt_tokens=64, max_prompt_tokens=63)),
    (
        {"prompt": "x", "prompt_template": "{prompt.__class__}"},
        "",
        PromptTemplateError(reason="it has the field 'prompt.__class__'"),
    ),
    ({"prompt": "x", "prompt_template": "no place"}, "", BadPromptTemplate(reason="it lacks {prompt}")),
    (
        {"prompt": "x", "system_prompt": "y", "prompt_template": "{prompt}"},
        "",
        BadPromptTemplate(reason="a system_prompt was sent, but the template lacks {system_prompt}"),
    ),
    (
        {"prompt": "x", "structured_output": "[]"},
        "",
        StructuredOutputInvalid(reason="it is not a JSON object"),
    ),
    ({"messages": "[]"}, "", MessagesInvalid(reason="the list is empty")),
    (
        {"messages": user("1", "2", "3")},
        "",
        MessagesInvalid(reason="the model's chat template refuses them: no"),
    ),
    ({"prompt": "x", "min_tokens": 1, "min_new_tokens": 1}, "", InvalidArgumentMinTokens()),
    ({"prompt": "x", "max_tokens": 1, "max_new_tokens": 2}, "", InvalidArgumentMaxTokens()),
    (
        {"prompt": "x", "max_tokens": 1, "min_tokens": 2},
        "",
        InvalidArgument(argument="min_tokens", value=2, reason="the answer can have at most 1"),
    ),
    (
        {"prompt": "x", "seed": -1},
        "",
        InvalidArgument(argument="seed", value=-1, reason=f"it must be from 0 to {2**64 - 1}"),
    ),
    (
        {"prompt": "<error>", "max_tokens": 10},
        "0 1 2 3 4",
        EngineInternalError(reason="the prompt asked for it"),
    ),
    ({"prompt": "<hang>"}, "", TritonTimeout(seconds=1)),
    ({"prompt": "<crash>", "max_tokens": 60}, "0", EngineProcessDied(reason="it ended with exit status 1")),
]


@pytest.fixture(scope="module")
def server(mock_archive, tmp_path_factory):
    directory = tmp_path_factory.mktemp("table")
    engine = unpacked(mock_archive(max_seq_len=MAX_SEQ_LEN), directory)
    (engine / "tokenizer/chat_template.jinja").write_text(CHAT)
    settings = {"ENGINE_DIR": str(engine), "RESPONSE_TIMEOUT": "1"}
    with cog_server("runner", directory / "log", concurrency=16, **settings) as server:
        server.log = directory / "log"
        yield server


@pytest.fixture
def client(server):
    wait_for(lambda: server.health()["status"] == "READY")
    return PredictionClient(server.url)


@pytest.mark.parametrize(("inputs", "text", "error"), TABLE)
def test_an_error_has_its_code_and_keeps_the_text_before_it(client, assert_fails, inputs, text, error):
    assert_fails(client, inputs, text, error)


def test_the_log_has_the_id_of_a_prediction_and_not_its_prompt(server, client):
    secret = "xyzzy"
    events = list(
        client.events(
            {"prompt": secret, "prompt_template": "{nothing} {prompt}", "log_performance_metrics": True}
        )
    )
    prediction = events[0].data["id"]

    def failure() -> str:
        lines = server.log.read_text().splitlines()
        return next((line for line in lines if "prediction failed" in line and prediction in line), "")

    assert "E1004" in wait_for(failure)
    assert secret not in server.log.read_text()


def test_messages_go_through_the_chat_template(client):
    answer = client.predict({"messages": user("a b", "c"), "max_tokens": 2})
    assert answer["metrics"]["input_token_count"] == 5
    assert "".join(answer["output"]) == "0 1"


def test_an_engine_that_dies_often_comes_back(server, answered):
    """After its sixth death within five minutes it was given up, for good, whoever made it die."""
    client = PredictionClient(server.url)
    codes: Counter[str] = Counter()

    def died_often() -> bool:
        try:
            result = list(client.events({"prompt": "<crash>", "max_tokens": 60}))[-1].data
            error = from_text(result["error"])
        except CogTritonError as refused:
            error = refused
        codes[error.code] += 1
        if error.code == EngineNotReady.code:
            answered(str(error), EngineNotReady())
        return codes[EngineProcessDied.code] == 7

    wait_for(died_often, 90)
    assert codes.keys() == {"E2400", "E2401"}
    wait_for(lambda: server.health()["status"] == "READY", 90)
    assert "".join(client.predict({"prompt": "x", "max_tokens": 2})["output"]) == "0 1"
