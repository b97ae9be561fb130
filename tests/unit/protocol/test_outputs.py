"""What an engine step gave, as bytes and back."""

from __future__ import annotations

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.protocol.engine import FinishReason, LogProbs, Output
from runner.protocol.outputs import TextOutput, decode_outputs, encode_outputs
from shared.errors import EngineInternalError, TritonUnknownError

I32 = st.integers(-(2**31), 2**31 - 1)
U64 = st.integers(0, 2**64 - 1)
F32 = st.floats(width=32, allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
REASON = st.sampled_from(FinishReason)


@st.composite
def token_outputs(draw):
    tokens = draw(st.lists(I32, max_size=40).map(tuple))
    log_probs = []
    if tokens and draw(st.booleans()):
        most = draw(st.integers(0, 3))
        likeliest = st.lists(st.tuples(st.integers(0, 2**31 - 1), F32), min_size=most, max_size=most)
        log_probs = [LogProbs(draw(F32), draw(likeliest)) for _ in tokens]
    cached = draw(st.none() | st.integers(0, 2**32 - 1))
    return Output(draw(U64), tokens, draw(REASON), None, log_probs or (), cached)


OUTPUTS = st.lists(token_outputs() | st.builds(TextOutput, U64, TEXT, REASON), max_size=6)


@given(OUTPUTS)
def test_they_come_back_as_they_went(outputs):
    assert list(decode_outputs(encode_outputs(outputs))) == outputs


@given(st.lists(st.tuples(U64, I32), max_size=50))
def test_steps_of_one_token_each_come_back_too(pairs):
    outputs = [Output(number, (token,)) for number, token in pairs]
    assert list(decode_outputs(encode_outputs(outputs))) == outputs


def test_a_length_that_only_looks_like_single_tokens():
    outputs = [Output(1, ()), Output(2, (3, 4))]
    assert list(decode_outputs(encode_outputs(outputs))) == outputs


@given(OUTPUTS, st.data())
def test_bytes_that_are_cut_or_changed_are_outputs_or_a_value_error(outputs, data):
    whole = bytearray(encode_outputs(outputs))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for given_bytes in (bytes(whole), bytes(whole[: data.draw(st.integers(0, len(whole)))])):
        try:
            decode_outputs(given_bytes)
        except ValueError:
            pass


def test_a_count_that_no_bytes_follow_takes_no_memory():
    with pytest.raises(ValueError, match="end"):
        decode_outputs(struct.pack("<IQBBI", 1, 5, 0, 0, 2**32 - 1))


def test_the_layout_is_the_documented_one():
    outputs = [
        Output(5, array("i", [10, 11])),
        Output(6, (), FinishReason.LENGTH, cached_tokens=7),
        Output(7, (3,), log_probs=[LogProbs(-0.5, [(4, -1.0)])]),
        TextOutput(8, "é", FinishReason.END_ID),
    ]
    assert encode_outputs(outputs) == (
        struct.pack("<I", 4)
        + struct.pack("<QBBI2i", 5, 0, 0, 2, 10, 11)
        + struct.pack("<QBBII", 6, 3, 1, 0, 7)
        + struct.pack("<QBBIiBfif", 7, 0, 2, 1, 3, 1, -0.5, 4, -1.0)
        + struct.pack("<QBBI", 8, 129, 0, 2)
        + "é".encode()
    )


def test_a_position_with_fewer_alternatives_is_padded_and_comes_back():
    given_output = Output(1, (5, 6), log_probs=[LogProbs(-1.0, [(5, -1.0), (9, -2.0)]), LogProbs(-0.5)])
    (output,) = decode_outputs(encode_outputs([given_output]))
    assert [list(position.likeliest) for position in output.log_probs] == [[(5, -1.0), (9, -2.0)], []]


@pytest.mark.parametrize(
    "error", [EngineInternalError(reason="no luck"), TritonUnknownError(reason="no luck")]
)
def test_an_error_travels_as_its_text(error):
    (output,) = decode_outputs(encode_outputs([Output(7, error=error)]))
    assert (output.request_id, type(output.error), str(output.error)) == (7, type(error), str(error))
