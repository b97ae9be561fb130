"""What OpenAI or vLLM accept, and real clients send: each was refused here."""

from __future__ import annotations

import json

import pytest

from runner.front.openai.asks import chat_asks, completion_asks
from runner.front.openai.parameters import ChatParameters, CompletionParameters
from runner.front.openai.reading import read
from shared.errors import ParameterNotSupported
from tests.unit.front.openai.conftest import HI, MODEL, events

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(**parameters):
    return read(ChatParameters, json.dumps({"messages": HI, **parameters}).encode())


def completion(**parameters):
    return read(CompletionParameters, json.dumps({"prompt": "Hi", **parameters}).encode())


def test_no_tokens_are_an_empty_text(run):
    """As OpenAI answers: clients ask so for the tokens of a prompt."""

    async def test(front, http):
        sent = {"prompt": ["10 20 30", "1"], "max_tokens": 0, "logprobs": 0}
        before = len(front.client.requests)
        body = (await http.post("/v1/completions", json=sent)).json()
        choice = {"text": "", "logprobs": None, "finish_reason": "length"}
        assert body["choices"] == [{"index": index, **choice} for index in (0, 1)]
        assert body["usage"] == {"prompt_tokens": 4, "completion_tokens": 0, "total_tokens": 4}
        *chunks, done = events((await http.post("/v1/completions", json=sent | {"stream": True})).text)
        assert done == "[DONE]"
        assert sorted(json.loads(chunk)["choices"][0]["index"] for chunk in chunks) == [0, 1]
        assert [json.loads(chunk)["choices"][0]["finish_reason"] for chunk in chunks] == ["length"] * 2
        assert len(front.client.requests) == before
        assert front.front.admission.count == 0
        assert (await http.post("/v1/completions", json=sent | {"prompt": ""})).status_code == 400

    run(test)


def test_the_new_name_of_max_tokens_wins():
    [ask] = chat_asks(chat(max_tokens=1, max_completion_tokens=2))
    assert ask.max_tokens == 2
    [ask] = chat_asks(chat(max_tokens=1, max_completion_tokens=None))
    assert ask.max_tokens == 1


def test_a_schema_that_only_has_a_name_is_any_json_object():
    wanted = {"type": "json_schema", "json_schema": {"name": "answer"}}
    [ask] = chat_asks(chat(response_format=wanted))
    [same] = chat_asks(chat(response_format={"type": "json_object"}))
    assert ask.structured_output == same.structured_output is not None


def test_no_log_probabilities_are_wanted():
    [ask] = completion_asks(completion(logprobs=False))
    assert ask.log_probs is None
    [ask] = chat_asks(chat(logprobs=False, top_logprobs=0))
    assert ask.log_probs is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]}, "a\nb"),
        ({"content": None, "refusal": "No."}, "No."),
        ({"refusal": "No."}, "No."),
        ({"content": "Yes.", "refusal": "No."}, "Yes."),
        ({"content": "a", "id": "msg_1", "cache_control": {"type": "ephemeral"}, "status": "done"}, "a"),
        ({"content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}, "a"),
        ({"content": [{"type": "text", "text": "a", "id": "x", "annotations": []}]}, "a"),
    ],
)
def test_messages_as_clients_keep_them(message, text):
    [first, second] = chat(messages=[*HI, {"role": "assistant", **message}]).messages
    assert first.for_template() == HI[0]
    assert second.for_template() == {"role": "assistant", "content": text}


def test_tools_that_must_not_be_called():
    assert chat_asks(chat(tools=[TOOL], tool_choice="none")) == chat_asks(chat())
    assert chat_asks(chat(functions=[TOOL["function"]], function_call="none")) == chat_asks(chat())
    for asked in ({"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "auto", "function_call": "none"}):
        with pytest.raises(ParameterNotSupported):
            chat(**asked)


def test_the_backend_of_structures_is_the_engines():
    assert chat_asks(chat(guided_decoding_backend="outlines")) == chat_asks(chat())
    assert completion_asks(completion(guided_decoding_backend="xgrammar")) == completion_asks(completion())


def test_tokens_of_a_conversation_with_and_without_the_next_turn(run, engine_directory):
    template = engine_directory / "tokenizer/chat_template.jinja"
    before = template.read_text()

    async def test(_, http):
        async def count(**more):
            sent = {"messages": HI, **more}
            return (await http.post("/tokenize", json=sent)).json()["count"]

        full = await count()
        assert await count(add_generation_prompt=True) == full
        assert await count(add_generation_prompt=False) == full - 1
        assert await count(continue_final_message=False, return_token_strs=None, tools=None) == full
        assert await count(chat_template_kwargs={"more": "1 2"}) == full + 2

    try:
        template.write_text(before + "{% if add_generation_prompt %} 7{% endif %}")
        run(test)
    finally:
        template.write_text(before)


def test_a_model_names_its_root(run):
    async def test(_, http):
        [model] = (await http.get("/v1/models")).json()["data"]
        assert (model["id"], model["root"]) == ("mine", MODEL)

    run(test, SERVED_MODEL_NAME="mine")
