"""What every engine needs of a request is checked before an engine sees it."""

from __future__ import annotations

import struct
from dataclasses import fields

import pytest

from runner.engines import checks
from runner.engines.checks import check_request
from runner.protocol.engine import Declaration, Limits, Request, SamplingParameters, StructuredOutput
from shared.errors import (
    InvalidArgument,
    ParameterNotHonoured,
    PromptRequired,
    PromptTooLong,
)

ASKING = {
    "top_k": 50,
    "top_p": 0.9,
    "temperature": 0.7,
    "min_tokens": 5,
    "seed": 0,
    "length_penalty": 1.5,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "min_p": 0.1,
}
PARTS = {
    "bad_words": [[1]],
    "logit_bias": {1: 2.0},
    "log_probs": 0,
    "structured_output": StructuredOutput("regex", "a"),
    "lora": "sql",
    "cache_salt": "x",
    "priority": 0,
}
NEUTRAL = [
    ("top_k", 0),
    ("top_p", 1.0),
    ("top_p", 0.0),
    ("temperature", 1.0),
    ("min_tokens", 0),
    ("length_penalty", 1.0),
    ("length_penalty", 0.0),
    ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0),
    ("frequency_penalty", 0.0),
    ("min_p", 0.0),
]
LIMITS = Limits(sequence=8, prompt=5, vocabulary=100)


def check(honours=(), *, prompt=(1, 2), max_tokens=3, **parts):
    check_request(Declaration("abacus", LIMITS, frozenset(honours)), Request(1, prompt, max_tokens, **parts))


def test_a_number_is_shown_as_it_was_sent():
    (sent,) = struct.unpack("<f", struct.pack("<f", 0.1))
    with pytest.raises(ParameterNotHonoured, match=r"min_p=0\.1\. Omit"):
        check(sampling=SamplingParameters(min_p=sent))


@pytest.mark.parametrize("count", [-2, -1, 256, 2**31 - 1])
def test_log_probabilities_of_more_tokens_than_a_step_can_hold_are_refused(count):
    check({"log_probs"}, log_probs=255)
    with pytest.raises(InvalidArgument, match=f"E1104 .*log_probs is {count}, but it must be from 0 to 255"):
        check({"log_probs"}, log_probs=count)


def test_every_parameter_is_known_here():
    assert list(ASKING) == [field.name for field in fields(SamplingParameters)]


@pytest.mark.parametrize(("name", "value"), ASKING.items())
def test_a_parameter_that_is_not_followed_is_refused(name, value):
    with pytest.raises(ParameterNotHonoured, match=f'"abacus" cannot honour {name}={value}'):
        check(sampling=SamplingParameters(**{name: value}))
    check({name}, sampling=SamplingParameters(**{name: value}))


def test_there_is_an_example_of_every_optional_part():
    assert set(PARTS) == set(checks._OPTIONAL_PARTS)


@pytest.mark.parametrize(("name", "value"), PARTS.items())
def test_a_part_that_is_not_followed_is_refused(name, value):
    with pytest.raises(ParameterNotHonoured, match=f'"abacus" cannot honour {name}='):
        check(**{name: value})
    check({name}, **{name: value})


def test_a_structure_is_not_told_as_something_that_was_not_sent():
    """`{"type": "json_object"}` is the schema of an object to the engines, and was told as json_schema."""
    with pytest.raises(ParameterNotHonoured, match=r"cannot honour structured_output=<structure>\."):
        check(structured_output=StructuredOutput("json_schema", '{"type":"object"}'))


def test_a_long_part_is_told_in_part():
    with pytest.raises(ParameterNotHonoured, match=r"logit_bias=\{0: 1.0, 1: 1.0, .*\.\.\.\.") as caught:
        check(logit_bias=dict.fromkeys(range(50_000), 1.0))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(("name", "value"), NEUTRAL)
def test_one_that_asks_for_nothing_passes(name, value):
    check(sampling=SamplingParameters(**{name: value}))


def test_a_prompt_is_within_the_limits():
    check(prompt=range(5))
    with pytest.raises(PromptRequired):
        check(prompt=())
    with pytest.raises(PromptTooLong, match="6"):
        check(prompt=range(6))


def test_there_is_something_to_generate():
    with pytest.raises(InvalidArgument, match="max_tokens"):
        check(max_tokens=0)


@pytest.mark.parametrize("wrong", [-1, 100])
@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("prompt", lambda wrong: {"prompt": (1, wrong)}),
        ("bad_words", lambda wrong: {"bad_words": [[1], [2, wrong]]}),
    ],
)
def test_every_id_is_in_the_vocabulary(name, parts, wrong):
    with pytest.raises(InvalidArgument) as refused:
        check({"bad_words"}, **parts(wrong))
    told = f"{name} is a list with the token {wrong}, but this model's tokens are 0 to 99."
    assert str(refused.value) == f"E1104 InvalidArgument: {told} Send another value, or omit it."


@pytest.mark.parametrize("wrong", [-1, 100])
def test_a_bias_is_for_a_token_of_the_vocabulary(wrong):
    with pytest.raises(InvalidArgument) as refused:
        check({"logit_bias"}, logit_bias={1: 1.0, wrong: 1.0})
    told = f"logit_bias is for the token {wrong}, but this model's tokens are 0 to 99."
    assert str(refused.value) == f"E1104 InvalidArgument: {told} Send another value, or omit it."
