"""What the inputs of a prediction ask of the engine."""

from __future__ import annotations

import pytest

from builder.engines.mock import counting_tokenizer
from runner.engines.base import SamplingParameters
from runner.inputs import Defaults, Inputs, prepare
from runner.settings import Settings
from runner.text.tokenizer import Tokenizer
from shared.errors import InvalidArgument, InvalidArgumentMaxTokens, InvalidArgumentMinTokens

TOKENIZER = Tokenizer(counting_tokenizer(), end_ids=frozenset({1}))
DEFAULTS = Defaults.of(Settings.from_environment({}), {}, TOKENIZER)


def prepared(**inputs):
    return prepare(Inputs(prompt="1 2 3", **inputs), DEFAULTS, TOKENIZER, 1)


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


# The order is: input, environment, engine.tar, default.
@pytest.mark.parametrize(
    ("sent", "environment", "engine", "tokens"),
    [
        (None, None, None, 3),
        (None, None, "e {prompt}", 4),
        (None, "e e {prompt}", "e {prompt}", 5),
        ("e e e {prompt}", "e e {prompt}", "e {prompt}", 6),
    ],
)
def test_where_the_prompt_template_comes_from(sent, environment, engine, tokens):
    settings = Settings.from_environment({"PROMPT_TEMPLATE": environment} if environment else {})
    defaults = Defaults.of(settings, {"prompt_template": engine}, TOKENIZER)
    request = prepare(Inputs(prompt="1 2 3", prompt_template=sent), defaults, TOKENIZER, 1).request
    assert len(request.input_token_ids) == tokens


@pytest.mark.parametrize(("end_id", "ids"), [(None, {1}), ("7", {7}), ("-1", set())])
def test_the_end_id_of_the_environment_comes_before_the_tokenizers(end_id, ids):
    settings = Settings.from_environment({"END_ID": end_id} if end_id else {})
    assert Defaults.of(settings, {}, TOKENIZER).end_ids == ids


def test_stop_sequences_of_the_engine_are_used_when_none_are_sent():
    defaults = Defaults.of(Settings.from_environment({}), {"stop_sequences": "a,b"}, TOKENIZER)
    assert prepare(Inputs(prompt="1"), defaults, TOKENIZER, 1).stop_sequences == ("a", "b")
    assert prepare(Inputs(prompt="1", stop_sequences=""), defaults, TOKENIZER, 1).stop_sequences == ()
