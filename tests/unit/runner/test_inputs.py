"""What the inputs of a prediction ask of the engine."""

from __future__ import annotations

import json

import pytest

from builder.engines.mock import counting_tokenizer
from runner.prediction.inputs import Defaults, Inputs
from runner.prediction.limits import UNLIMITED
from runner.prediction.preparation import Preparation
from runner.prediction.sampling import settle
from runner.prediction.structured_output import structured_output_of_text
from runner.protocol.engine import Limits, SamplingParameters
from runner.settings import Settings
from runner.text.tokenizer import Tokenizer
from shared.errors import (
    InvalidArgument,
    InvalidArgumentMaxTokens,
    InvalidArgumentMinTokens,
    MessagesInvalid,
    PromptRequired,
    PromptTooLong,
    SettingInvalid,
    StructuredOutputInvalid,
)

TOKENIZER = Tokenizer(counting_tokenizer(), end_ids=frozenset({1}))
DEFAULTS = Defaults.of(Settings.from_environment({}), {}, TOKENIZER)


def prepared(defaults=DEFAULTS, limits=None, **inputs):
    preparation = Preparation(TOKENIZER, defaults, limits or UNLIMITED)
    ask = Inputs(**{"prompt": "1 2 3", **inputs}).ask()
    prompt = (
        preparation.conversation(ask).json.decode()
        if ask.conversation is not None
        else preparation.prompt(ask)
    )
    return preparation.request(ask, preparation.tokenizer.encode(prompt), 1)


def sampling(**inputs) -> SamplingParameters:
    return prepared(**inputs).request.sampling


def test_the_defaults_of_the_original_sample():
    assert sampling() == SamplingParameters(top_k=0, top_p=0.95, temperature=0.7)


@pytest.mark.parametrize("inputs", [{"temperature": 0}, {"top_p": 0}, {"top_k": 1}])
def test_the_edges_that_executors_refuse_mean_greedy(inputs):
    assert sampling(**inputs) == SamplingParameters(top_k=1)


def test_top_k_minus_one_is_no_limit():
    assert sampling(top_k=-1).top_k == 0


def test_zero_is_a_seed():
    assert sampling(seed=0).seed == 0


def test_a_seed_that_was_not_sent_is_random_where_the_engine_chooses_by_it():
    seeded = Defaults.of(Settings.from_environment({}), {}, TOKENIZER, random_seed=True)
    seeds = {prepared(seeded).request.sampling.seed for _ in range(20)}
    assert len(seeds) > 15
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert prepared(seeded, seed=7).request.sampling.seed == 7
    assert prepared(seeded, temperature=0).request.sampling.seed is None
    assert sampling().seed is None


@pytest.mark.parametrize(
    "inputs",
    [
        {"seed": -1},
        {"seed": 2**64},
        {"top_k": 2**31},
        {"presence_penalty": 1e39},
        {"presence_penalty": float("nan")},
        {"max_tokens": 2**31},
        {"stop_sequences": "a" * 20_000},
    ],
)
def test_what_no_engine_can_be_told_is_refused(inputs):
    with pytest.raises(InvalidArgument, match=next(iter(inputs))):
        prepared(**inputs)


@pytest.mark.parametrize("inputs", [{"temperature": 1e-60}, {"top_p": 1e-60}])
def test_what_is_zero_to_engines_means_greedy(inputs):
    assert sampling(**inputs) == SamplingParameters(top_k=1)


def test_a_penalty_that_is_zero_to_engines_is_refused_as_what_was_sent():
    with pytest.raises(InvalidArgument, match="repetition_penalty is 1e-60, but it must be above 0"):
        settle(SamplingParameters(repetition_penalty=1e-60), 10, random_seed=False)


def test_max_tokens_is_what_the_prompt_leaves_room_for():
    assert prepared(limits=Limits(10, 9)).request.max_tokens == 7
    with pytest.raises(InvalidArgument, match="min_tokens is 8, but the answer can have at most 7"):
        prepared(limits=Limits(10, 9), min_tokens=8)


def test_a_prompt_that_is_too_long():
    assert prepared(limits=Limits(10, 3)).request.max_tokens == 7
    with pytest.raises(PromptTooLong, match="has 3 tokens; the maximum input length is 2"):
        prepared(limits=Limits(10, 2))


@pytest.mark.parametrize("prompt", [None, "", " "])
def test_no_prompt(prompt):
    with pytest.raises(PromptRequired):
        prepared(prompt=prompt)


def test_a_template_that_repeats_a_prompt_too_often():
    with pytest.raises(
        InvalidArgument, match=r"prompt is \d+ characters long, but .* at most 4194304 characters"
    ):
        prepared(prompt="1" * 10_000, prompt_template="{prompt}" * 1000)


def test_messages_beside_a_prompt():
    with pytest.raises(MessagesInvalid, match="was sent as well"):
        prepared(messages="[]")


def test_penalties_that_change_nothing_are_not_sent():
    assert sampling(length_penalty=1.0, presence_penalty=0.0) == sampling()
    assert sampling(length_penalty=0.5, presence_penalty=-1).length_penalty == 0.5


@pytest.mark.parametrize(("sent", "means"), [(-1, None), (0, None), (5, 5)])
def test_min_tokens(sent, means):
    assert sampling(min_tokens=sent).min_tokens == means
    assert sampling(min_new_tokens=sent).min_tokens == means


def test_min_tokens_under_both_names():
    with pytest.raises(InvalidArgumentMinTokens):
        prepared(min_tokens=1, min_new_tokens=1)


def test_more_min_tokens_than_max_tokens():
    with pytest.raises(InvalidArgument):
        prepared(min_tokens=9, max_tokens=8)


def test_max_tokens_under_its_old_name():
    assert prepared(max_new_tokens=7).request.max_tokens == 7
    assert prepared(max_new_tokens=7, max_tokens=7).request.max_tokens == 7
    with pytest.raises(InvalidArgumentMaxTokens):
        prepared(max_new_tokens=7, max_tokens=8)


# What a key is at each place; the first that has it counts. The default is the last.
PLACES = ("sent", "environment", "config file", "engine.tar")
PRECEDENCE = {
    "prompt_template": (*(f"{place} {{prompt}}" for place in PLACES), "{prompt}"),
    "system_prompt": (*PLACES, ""),
    "stop_sequences": (*PLACES, None),
}


@pytest.mark.parametrize("first", range(len(PLACES) + 1))
@pytest.mark.parametrize("key", PRECEDENCE)
def test_precedence(key, first, tmp_path):
    *values, default = PRECEDENCE[key]
    in_file: object
    in_engine: object
    sent, environment, in_file, in_engine = (
        value if place >= first else None for place, value in enumerate(values)
    )
    if isinstance(in_engine, str) and key == "stop_sequences":
        in_engine, in_file = [in_engine], in_file and [in_file]
    (tmp_path / "config.yaml").write_text(json.dumps({"instantiate": {key: in_file} if in_file else {}}))
    variables = {"COG_TRITON_CONFIG": str(tmp_path / "config.yaml"), key.upper(): environment or ""}
    settings = Settings.from_environment(variables)
    instantiate = settings.instantiate({"instantiate": {key: in_engine} if in_engine else None})
    defaults = Defaults.of(settings, instantiate, TOKENIZER)
    template = {} if key == "prompt_template" else {"prompt_template": "{system_prompt} {prompt}"}
    preparation = Preparation(TOKENIZER, defaults)
    ask = Inputs(prompt="1", **template, **{key: sent}).ask()
    prompt = preparation.prompt(ask)
    expected = values[first] if first < len(values) else default
    match key:
        case "prompt_template":
            assert prompt == expected.format(prompt="1")
        case "system_prompt":
            assert prompt == f"{expected} 1"
        case "stop_sequences":
            assert preparation.request(ask, [1], 1).stop_sequences == (
                () if expected is None else (expected,)
            )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("instantiate: {system_promt: x}", "system_promt"),
        ("instantiate: {system_prompt: [x]}", "system_prompt"),
        (
            "instantiate: {prompt_template: Hello}",
            "prompt_template is not a valid template: it lacks {prompt}",
        ),
        (None, "there is no such file"),
    ],
)
def test_a_config_file_that_is_not_valid(tmp_path, content, reason):
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_text(content)
    settings = Settings.from_environment({"COG_TRITON_CONFIG": str(path)})
    with pytest.raises(SettingInvalid, match=f"COG_TRITON_CONFIG.*{reason}"):
        settings.instantiate({})


def test_a_config_that_never_ends_is_not_read():
    with pytest.raises(SettingInvalid, match="'/dev/zero', but it is not a file"):
        Settings.from_environment({"COG_TRITON_CONFIG": "/dev/zero"}).instantiate({})


@pytest.mark.parametrize(
    ("source", "reason"),
    [("data:,instantiate: {x: 1}", "x"), ("data:x", "no comma"), ("data:;base64,x", "not base64")],
)
def test_a_config_in_a_url_that_is_not_valid(source, reason):
    with pytest.raises(SettingInvalid, match=f"COG_TRITON_CONFIG.*data: URL.*{reason}"):
        Settings.from_environment({"COG_TRITON_CONFIG": source}).instantiate({})


@pytest.mark.parametrize(("end_id", "ids"), [(None, {1}), ("7", {7}), ("-1", set())])
def test_the_end_id_of_the_environment_comes_before_the_tokenizers(end_id, ids):
    settings = Settings.from_environment({"END_ID": end_id} if end_id else {})
    assert Defaults.of(settings, {}, TOKENIZER).end_ids == ids


def test_an_end_id_that_the_tokenizer_does_not_have():
    with pytest.raises(SettingInvalid, match="END_ID"):
        Defaults.of(Settings.from_environment({"END_ID": "99999"}), {}, TOKENIZER)


def test_a_default_that_no_request_could_have_is_refused_at_the_start():
    settings = Settings.from_environment({"STOP_SEQUENCES": "a" * 20_000})
    with pytest.raises(SettingInvalid, match="it has 20000 characters, and at most 16384 are accepted"):
        Defaults.of(settings, {}, TOKENIZER)


def test_stop_sequences_that_are_sent_empty_are_none():
    defaults = Defaults.of(Settings.from_environment({}), {"stop_sequences": ["a,b", "c"]}, TOKENIZER)
    assert prepared(defaults).stop_sequences == ("a,b", "c")
    assert prepared(defaults, stop_sequences="").stop_sequences == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "it is not JSON: "),
        ("[]", "it is not a JSON object"),
        ('{"json":' + "[" * 100_000, "it is nested too deeply"),
        ('{"json":' + "9" * 5000 + "}", "it has a number with too many digits"),
        ('{"json": false}', "json is not a schema"),
        ('{"regex": "\\ud800"}', "regex has half of a surrogate pair"),
        ('{"choice": ["\\udc00"]}', "choice has half of a surrogate pair"),
    ],
)
def test_what_is_wrong_with_a_structure_is_told_without_pythons_words(text, told):
    with pytest.raises(StructuredOutputInvalid, match=f"to that structure: {told}"):
        Inputs(prompt="a", structured_output=text).ask()


def test_a_structure_that_is_not_asked_for():
    assert structured_output_of_text('{"json_object": false}') is None
