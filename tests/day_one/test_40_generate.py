"""One answer on the terminal, without a server: the original's `run.py` beside an engine."""

from __future__ import annotations

import json

import pytest

DEMO = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(scope="module", autouse=True)
def built(user):
    user.write("config.yaml", f"engine: ctranslate2\nmodel: {DEMO}\n")
    user.types("cog-triton build config.yaml -o engine.tar")
    user.write("mock.yaml", "engine: mock\n")
    user.types("cog-triton build mock.yaml -o mock.tar")


def test_an_answer(user):
    answer = user.types(
        "cog-triton generate engine.tar --prompt 'Once upon a time,' --max-tokens 16 --temperature 0"
    )
    assert answer.text.endswith("\n")
    assert len(answer.text.split()) > 4
    assert answer.errors == ""


def test_for_a_program(user):
    """The same text, and what is known of it."""
    command = "cog-triton generate engine.tar --prompt 'Once upon a time,' --max-tokens 16 --temperature 0"
    document = user.types(f"{command} --json").json
    assert document["output"] + "\n" == user.types(command).text
    assert document["finish_reason"] == "length"
    assert document["metrics"]["output_token_count"] == 16
    assert document["metrics"].keys() > {"time_to_first_token", "tokens_per_second", "predict_time"}


def test_the_prompt_may_be_piped_into_it(user):
    document = user.types("cog-triton generate mock.tar --max-tokens 3 --json", typed="one two three\n").json
    assert document["output"] == "0 1 2"
    assert document["metrics"]["input_token_count"] == 3


MESSAGES = json.dumps([{"role": "user", "content": "Who are you?"}])


def test_a_chat(user):
    """Of a model that has a chat template; another one says so."""
    refused = user.types(f"cog-triton generate mock.tar --messages '{MESSAGES}'", status=1)
    assert refused.errors.startswith("E1006 ChatTemplateMissing: ")
    user.types("mkdir unpacked")
    user.types("tar -xf mock.tar -C unpacked")
    user.write("unpacked/tokenizer/chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")
    command = "cog-triton generate unpacked --messages - --max-tokens 3 --json"
    assert user.types(command, typed=MESSAGES).json["metrics"]["input_token_count"] == 3


def test_what_goes_wrong_is_one_line_with_a_code(user):
    missing = user.types("cog-triton generate nothing.tar --prompt x", status=1)
    assert missing.errors.startswith("E4201 WeightsNotFound: ")
    bad = user.types("cog-triton generate mock.tar --messages x", status=1)
    assert bad.errors.startswith("E1005 MessagesInvalid: ")
    assert (len(missing.errors.splitlines()), len(bad.errors.splitlines())) == (1, 1)


def test_a_failure_half_way_keeps_the_text_before_it(user):
    half = user.types("cog-triton generate mock.tar --prompt '<error> x' --max-tokens 6", status=1)
    assert half.text == "0 1 2\n"
    assert half.errors.startswith("E2405 EngineInternalError: ")


def test_an_engine_that_cannot_be_loaded(user):
    user.write("unpacked/engine/mock.json", "{}")
    said = user.types("cog-triton generate unpacked --prompt x --json", status=1).json
    assert said["error"]["code"] == "E2407"
