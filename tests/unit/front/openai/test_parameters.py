import json

import pytest
from pydantic import ValidationError

from runner.front.openai.asks import chat_asks, completion_asks
from runner.front.openai.parameters import (
    ChatParameters,
    CompletionParameters,
    DetokenizeParameters,
    Message,
    TokenizeParameters,
)
from runner.front.openai.reading import read
from runner.protocol.engine import SamplingParameters, StructuredOutput
from shared.errors import (
    ParameterNotSupported,
    ParameterUnknown,
    RequestInvalid,
    StructuredOutputInvalid,
)

HI = [{"role": "user", "content": "Hi"}]


def chat(**parameters):
    return read(ChatParameters, json.dumps({"messages": HI, **parameters}).encode())


def completion(**parameters):
    return read(CompletionParameters, json.dumps({"prompt": "Hi", **parameters}).encode())


def refused(kind, body):
    with pytest.raises((RequestInvalid, ParameterUnknown, ParameterNotSupported)) as raised:
        read(kind, body if isinstance(body, bytes) else json.dumps(body).encode())
    return raised.value


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Hi", ["Hi"]),
        (["Hi", "Ho"], ["Hi", "Ho"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_prompts_are_texts_or_token_ids_one_or_several(prompt, prompts):
    found = [ask.prompt for ask in completion_asks(completion(prompt=prompt))]
    assert [one if isinstance(one, str) else list(one) for one in found] == prompts


@pytest.mark.parametrize("prompt", [None, [], {}, 1, True, [True], [1, "a"], [[1], "a"], [[]], [1.5]])
def test_other_prompts_are_refused(prompt):
    error = refused(CompletionParameters, {"prompt": prompt})
    assert error.details["parameter"] == "prompt"


@pytest.mark.parametrize("prompt", ["a", [1], []], ids=["texts", "token ids", "neither"])
def test_more_prompts_than_may_be_answered_are_refused_unread(prompt):
    assert "may have at most 128 prompts" in str(refused(CompletionParameters, {"prompt": [prompt] * 129}))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatParameters, {"messages": [{"role": "user"}] * 3}),
        (TokenizeParameters, {"messages": [{"role": "user"}] * 3}),
        (DetokenizeParameters, {"tokens": ["a"] * 3}),
    ],
)
def test_one_wrong_entry_is_enough(kind, body):
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() == 1


@pytest.mark.parametrize("token", [-1, 2**31])
def test_token_ids_fit_in_the_tensor(token):
    assert "0 to 2147483647" in str(refused(CompletionParameters, {"prompt": [1, token]}))


def test_a_prompt_is_left_as_it_is_whatever_template_is_set():
    ask = completion_asks(completion())[0]
    assert (ask.prompt_template, ask.max_tokens) == ("{prompt}", 16)


def test_what_is_not_sent_is_not_set():
    ask = chat_asks(chat(model="m", temperature=None, logit_bias=None, stop=None))[0]
    assert ask.max_tokens is None
    assert ask.stop_sequences is None
    assert ask.log_probs is None
    # OpenAI's own default of top_p chooses among all tokens; without one, engines take the likeliest.
    assert ask.sampling == SamplingParameters(top_p=1.0)


def test_every_parameter_of_sampling_is_handed_on():
    sent = {
        "top_k": 5,
        "top_p": 0.5,
        "temperature": 0,
        "min_tokens": 2,
        "seed": 7,
        "length_penalty": 1.5,
        "repetition_penalty": 1.25,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "min_p": 0.25,
    }
    sampling = chat_asks(chat(**sent))[0].sampling
    assert {name: getattr(sampling, name) for name in sampling.__slots__} == sent


def test_the_rest_is_handed_on():
    ask = chat_asks(
        chat(
            stop="x",
            logit_bias={"5": -100, "7": 0.5},
            logprobs=True,
            top_logprobs=3,
            ignore_eos=True,
            max_completion_tokens=9,
            chat_template_kwargs={"enable_thinking": False},
        )
    )[0]
    assert ask.stop_sequences == ("x",)
    assert ask.logit_bias == {5: -100, 7: 0.5}
    assert ask.log_probs == 3
    assert ask.ignore_end
    assert ask.max_tokens == 9
    assert ask.template_arguments == b'{"enable_thinking": false}'
    assert json.loads(ask.conversation.json) == HI


SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"enum": ["é"]}}}
TEXT = '{"type":"object","properties":{"b":{"type":"integer"},"a":{"enum":["é"]}}}'


@pytest.mark.parametrize(
    ("sent", "kind", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema", '{"type":"object"}'),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}},
            "json_schema",
            TEXT,
        ),
        ({"structured_outputs": {"json": SCHEMA, "regex": None}}, "json_schema", TEXT),
        ({"structured_outputs": {"json": TEXT}}, "json_schema", TEXT),
        ({"structured_outputs": {"json_object": True}}, "json_schema", '{"type":"object"}'),
        ({"structured_outputs": {"regex": "a+"}, "guided_json": None}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "choice", '["a","b"]'),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "ebnf_grammar", 'root ::= "a"'),
        ({"guided_json": SCHEMA}, "json_schema", TEXT),
        ({"guided_regex": "a"}, "regex", "a"),
        ({"guided_choice": ["a"]}, "choice", '["a"]'),
        ({"guided_grammar": 'start: "a"'}, "ebnf_grammar", 'start: "a"'),
    ],
)
def test_what_a_text_is_held_to_can_be_said_in_many_words(sent, kind, text):
    for ask in (chat_asks(chat(**sent))[0], completion_asks(completion(**sent))[0]):
        assert ask.structured_output == StructuredOutput(kind, text)


@pytest.mark.parametrize(
    ("sent", "error", "text"),
    [
        ({"response_format": {"type": "json_schema"}}, RequestInvalid, "json_schema.schema is missing"),
        (
            {"response_format": {"type": "json_object"}, "guided_regex": "a"},
            RequestInvalid,
            "response_format and guided_regex were both sent",
        ),
        ({"structured_outputs": {"regexp": "a"}}, StructuredOutputInvalid, "did you mean regex"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            StructuredOutputInvalid,
            "regex and choice",
        ),
        ({"structured_outputs": {"choice": ["a", ""]}}, StructuredOutputInvalid, "choice is not a list of"),
        ({"structured_outputs": {"choice": []}}, StructuredOutputInvalid, "choice is not a list of"),
        ({"structured_outputs": {"json": 3}}, StructuredOutputInvalid, "json is not a schema"),
        ({"guided_grammar": " "}, StructuredOutputInvalid, "grammar is empty"),
        ({"guided_regex": "a" * (1 << 18)}, StructuredOutputInvalid, "262144 characters"),
    ],
)
def test_what_it_cannot_be_held_to_is_refused(sent, error, text):
    with pytest.raises(error, match=text):
        chat_asks(chat(**sent))


def test_nobody_who_asks_for_text_is_held_to_anything():
    sent = {"response_format": {"type": "text"}, "structured_outputs": {}}
    assert chat_asks(chat(**sent))[0].structured_output is None
    assert chat_asks(chat())[0].structured_output is None


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_images_sound_and_files_are_refused(kind):
    content = [{"type": "text", "text": "What is it?"}, {"type": kind, kind: {}}]
    error = refused(ChatParameters, {"messages": [{"role": "user", "content": content}]})
    assert isinstance(error, ParameterNotSupported)
    assert error.details["parameter"] == "messages[0].content[1]"
    assert "images, sound and files are not supported" in str(error)


def test_log_probs_of_a_chat_without_alternatives_and_of_completions():
    assert chat_asks(chat(logprobs=True))[0].log_probs == 0
    assert completion_asks(completion(logprobs=0))[0].log_probs == 0
    assert completion_asks(completion())[0].log_probs is None


def test_n_texts_of_each_prompt_have_seeds_of_their_own():
    asks = completion_asks(completion(prompt=["a", "b"], n=2, seed=-1, best_of=2))
    assert [(ask.prompt, ask.sampling.seed) for ask in asks] == [
        ("a", 2**64 - 1),
        ("a", 0),
        ("b", 2**64 - 1),
        ("b", 0),
    ]
    assert [ask.sampling.seed for ask in chat_asks(chat(n=3))] == [None] * 3


def test_texts_of_all_prompts_are_bounded():
    with pytest.raises(RequestInvalid, match="2 prompts with n=65 are more than 128 texts"):
        completion_asks(completion(prompt=["a", "b"], n=65))


def test_token_biases_of_all_texts_are_bounded():
    """Each text sends its own to the engine: those of 128 texts delayed everybody's streams by seconds."""
    biases = {str(number): 1 for number in range(65536)}
    assert len(completion_asks(completion(prompt=["a", "b"], n=2, logit_bias=biases))) == 4
    reason = "65536 token ids for each of 6 texts are more than 262144"
    with pytest.raises(RequestInvalid, match=reason):
        completion_asks(completion(prompt=["a", "b"], n=3, logit_bias=biases))


def test_a_developer_is_the_system_to_templates():
    told = Message(role="developer", content="Be brief.", name="x").for_template()
    assert told == {"role": "system", "content": "Be brief.", "name": "x"}


def test_parts_of_text_are_lines():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert chat(messages=[{"role": "user", "content": parts}]).messages[0].content == "a\nb"


def test_an_answer_of_ours_can_be_sent_back_as_it_came():
    answered = {"role": "assistant", "content": "Ho", "refusal": None, "tool_calls": None, "annotations": []}
    assert chat(messages=[*HI, answered]).messages[1].for_template() == {"role": "assistant", "content": "Ho"}


@pytest.mark.parametrize(
    "neutral",
    [
        {"tools": [], "tool_choice": "none", "functions": None, "parallel_tool_calls": True},
        {"response_format": {"type": "text"}, "modalities": ["text"], "store": False, "metadata": {}},
        {"service_tier": "auto", "stream": True, "stream_options": {"include_obfuscation": False}},
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
    ],
)
def test_what_asks_for_nothing_is_taken(neutral):
    chat(**neutral)


@pytest.mark.parametrize(
    "asked",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"functions": [{"name": "f"}]},
        {"function_call": {"name": "f"}},
        {"include_reasoning": False},
        {"modalities": ["text", "audio"]},
        {"audio": {"voice": "alloy", "format": "wav"}},
        {"prediction": {"type": "content", "content": "x"}},
        {"reasoning_effort": "high"},
        {"verbosity": "low"},
        {"service_tier": "flex"},
        {"store": True},
        {"metadata": {"a": "b"}},
        {"web_search_options": {}},
        {"moderation": {"model": "m"}},
        {"prompt_cache_retention": "24h"},
        {"prompt_cache_options": {"mode": "explicit"}},
    ],
)
def test_what_openai_does_and_we_do_not_is_refused_by_name(asked):
    error = refused(ChatParameters, {"messages": HI, **asked})
    assert isinstance(error, ParameterNotSupported)
    assert [error.details["parameter"]] == list(asked)


# Each with vLLM's own default.
OF_VLLM = {
    "allowed_token_ids": None, "bad_words": [], "include_stop_str_in_output": False, "prompt_logprobs": None,
    "return_token_ids": None, "return_tokens_as_token_ids": None, "skip_special_tokens": True,
    "spaces_between_special_tokens": True, "stop_token_ids": [], "truncate_prompt_tokens": None,
    "use_beam_search": False, "echo": False,
}  # fmt: skip


def test_what_asks_vllm_for_nothing_asks_for_nothing_here():
    assert read(
        CompletionParameters, json.dumps({"prompt": "Hi", **OF_VLLM, "add_special_tokens": True}).encode()
    )
    in_chats = {
        "add_special_tokens": False, "add_generation_prompt": True, "continue_final_message": False,
        "chat_template": None, "documents": None,
    }  # fmt: skip
    assert read(ChatParameters, json.dumps({"messages": HI, **OF_VLLM, **in_chats}).encode())


@pytest.mark.parametrize(
    "asked",
    [
        {"allowed_token_ids": [1]}, {"bad_words": ["x"]}, {"include_stop_str_in_output": True}, {"prompt_logprobs": 0},
        {"return_token_ids": True}, {"skip_special_tokens": False}, {"stop_token_ids": [1]}, {"use_beam_search": True},
        {"truncate_prompt_tokens": 1}, {"echo": True},
    ],
)  # fmt: skip
def test_what_vllm_does_and_we_do_not_is_refused_by_name(asked):
    for kind, body in ((ChatParameters, {"messages": HI}), (CompletionParameters, {"prompt": "Hi"})):
        error = refused(kind, body | asked)
        assert isinstance(error, ParameterNotSupported)
        assert [error.details["parameter"]] == list(asked)


@pytest.mark.parametrize("asked", [{"echo": True}, {"suffix": "x"}, {"best_of": 2}])
def test_what_completions_had_and_we_do_not_is_refused_by_name(asked):
    error = refused(CompletionParameters, {"prompt": "Hi", **asked})
    assert isinstance(error, ParameterNotSupported)
    assert [error.details["parameter"]] == list(asked)


@pytest.mark.parametrize(
    ("body", "parameter", "text"),
    [
        (b"{", None, "the body is not JSON"),
        (b"[]", None, "the body is not a JSON object"),
        (b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", None, "the body is nested too deeply"),
        ({}, "messages", "messages is missing"),
        ({"messages": []}, "messages", "messages must not be empty"),
        ({"messages": "Hi"}, "messages", "messages must be a list"),
        ({"messages": ["Hi"]}, "messages[0]", "messages[0] must be an object"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0].content is missing"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "must be text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "must be 'system'"),
        (
            {"messages": [{"role": "user", "content": [{"text": "x"}]}]},
            "messages[0].content",
            "only have parts",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "refusal": "x"}]}]},
            "messages[0].content",
            "only have parts",
        ),
        ({"messages": HI, "guided_json": 5}, "guided_json", "guided_json must be a schema or its text"),
        (
            {
                "messages": HI,
                "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": 5}},
            },
            "response_format.json_schema.schema",
            "json_schema.schema must be a schema or true",
        ),
        ({"messages": HI, "response_format": {"type": "xml"}}, "response_format.type", "must be 'text'"),
        ({"messages": HI, "temperature": "1"}, "temperature", "temperature must be a number"),
        ({"messages": HI, "temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"messages": HI, "top_p": -0.1}, "top_p", "greater than or equal to 0"),
        ({"messages": HI, "n": True}, "n", "n must be a whole number"),
        ({"messages": HI, "n": 129}, "n", "less than or equal to 128"),
        ({"messages": HI, "seed": 2**64}, "seed", "seed is too far from 0"),
        ({"messages": HI, "max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"messages": HI, "stop": [1]}, "stop", "stop must be text or a list of texts"),
        ({"messages": HI, "logit_bias": {"a": 1}}, "logit_bias", "from token ids to numbers"),
        ({"messages": HI, "logit_bias": {"5": 101}}, "logit_bias[5]", "less than or equal to 100"),
        (
            {"messages": HI, "logit_bias": {"99999999999": 1}},
            "logit_bias",
            "token ids, of at most 2147483647",
        ),
        ({"messages": HI, "logit_bias": {"1" * 5000: 1}}, "logit_bias", "token ids, of at most 2147483647"),
        ({"messages": HI, "logit_bias": {str(n): 1 for n in range(65537)}}, "logit_bias", "65536 token ids"),
        ({"messages": HI * 20_000}, "messages", "messages may have at most 16384 entries"),
        ({"messages": HI, **dict.fromkeys(map(str, range(300)))}, None, "the body may have at most 256"),
        ({"messages": [dict.fromkeys(map(str, range(300)))]}, "messages[0]", "may have at most 256 param"),
        ({"messages": HI, "top_logprobs": 2}, "top_logprobs", "needs logprobs to be true"),
        ({"messages": HI, "stream_options": {}}, "stream_options", "needs stream to be true"),
    ],
)
def test_what_is_wrong_is_named(body, parameter, text):
    error = refused(ChatParameters, body)
    assert isinstance(error, RequestInvalid)
    assert error.details["parameter"] == parameter
    assert text in str(error)


def test_of_two_that_are_as_near_the_one_that_begins_alike_is_meant():
    error = refused(CompletionParameters, {"prompt": "x", "max_completion_tokens": 17})
    assert error.details["instead"] == "Write max_tokens, or omit it"


@pytest.mark.parametrize(
    ("body", "parameter", "instead"),
    [
        ({"messages": HI, "temprature": 1}, "temprature", "Write temperature, or omit it."),
        ({"messages": HI, "zzz": 1}, "zzz", "Omit it."),
        (
            {"messages": HI, "stream": True, "stream_options": {"include_usag": True}},
            "stream_options.include_usag",
            "Write include_usage, or omit it.",
        ),
        ({"messages": HI, "\x00" * 999: 1}, ascii("\x00" * 80), "Omit it."),
        ({"messages": HI, "": 1}, "''", "Omit it."),
        ({"messages": HI, "stream": True, "stream_options": {" ": 1}}, "stream_options.' '", "Omit it."),
    ],
)
def test_an_unknown_parameter_is_named_with_the_nearest_known_one(body, parameter, instead):
    error = refused(ChatParameters, body)
    assert isinstance(error, ParameterUnknown)
    assert error.details["parameter"] == parameter
    assert str(error).endswith(instead)
