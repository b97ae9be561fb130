"""The tensors of `tensorrt_llm`: from a request to inputs and back, and the refusal of everything else."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runner.protocol.engine import STRUCTURES, Request, SamplingParameters, StructuredOutput
from runner.protocol.frames import RequestFrame, Tensor
from runner.protocol.tokens import INPUTS, OUTPUTS, decode_request, request_tensors
from shared.errors import InvalidArgument, MalformedRequest, TensorNotSupported

TOKEN = st.integers(0, 2**31 - 1)
FLOAT = st.floats(0, 1e6, width=32)
SAMPLING = st.builds(
    SamplingParameters,
    top_k=st.none() | st.integers(0, 2**31 - 1),
    top_p=st.none() | st.floats(0, 1, width=32, exclude_min=True),
    temperature=st.none() | FLOAT,
    min_tokens=st.none() | st.integers(0, 2**31 - 1),
    seed=st.none() | st.integers(0, 2**64 - 1),
    length_penalty=st.none() | FLOAT,
    repetition_penalty=st.none() | st.floats(0, 100, width=32, exclude_min=True),
    presence_penalty=st.none() | st.floats(-2, 2, width=32),
    frequency_penalty=st.none() | st.floats(-2, 2, width=32),
    min_p=st.none() | st.floats(0, 1, width=32),
)
REQUESTS = st.builds(
    Request,
    request_id=st.integers(0, 2**64 - 1),
    input_token_ids=st.lists(TOKEN, min_size=1, max_size=50),
    max_tokens=st.integers(1, 2**31 - 1),
    end_ids=st.frozensets(TOKEN, max_size=4),
    stop_words=st.lists(st.lists(TOKEN, min_size=1, max_size=5), max_size=4),
    bad_words=st.lists(st.lists(TOKEN, min_size=1, max_size=5), max_size=4),
    sampling=SAMPLING,
    streaming=st.booleans(),
    structured_output=st.none()
    | st.builds(StructuredOutput, st.sampled_from(STRUCTURES), st.text(min_size=1, max_size=20)),
    lora=st.none() | st.text(min_size=1, max_size=9),
    cache_salt=st.none() | st.text(min_size=1, max_size=9),
    priority=st.none() | st.integers(0, 2**31 - 1),
)

PLAIN = Request(request_id=1, input_token_ids=[5, 6, 7], max_tokens=4)


def frame(request: Request = PLAIN, *extra: Tensor, without: str = "") -> RequestFrame:
    """A request's inputs, with these in place of those of the same name."""
    tensors = {raw.name: Tensor(*raw) for raw in request_tensors(request)}
    tensors.update((tensor.name, tensor) for tensor in extra)
    tensors.pop(without, None)
    return RequestFrame(request.request_id, "", tuple(tensors.values()))


def int32(name: str, *values: int, shape: tuple[int, ...] | None = None) -> Tensor:
    return Tensor(name, "INT32", shape or (1, len(values)), struct.pack(f"<{len(values)}i", *values))


def fp32(name: str, value: float) -> Tensor:
    return Tensor(name, "FP32", (1, 1), struct.pack("<f", value))


def boolean(name: str, value: bool) -> Tensor:
    return Tensor(name, "BOOL", (1, 1), bytes([value]))


@given(REQUESTS)
def test_a_request_comes_back_as_it_went(request):
    assert decode_request(frame(request)) == request


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("priority", 2**31),
        ("priority", -(2**31) - 1),
        ("logit_bias", {1: 1e39}),
        ("logit_bias", {1: 0, 2: 1e39}),
    ],
)
def test_a_number_that_no_tensor_holds_is_refused(part, value):
    with pytest.raises(InvalidArgument) as refused:
        request_tensors(replace(PLAIN, **{part: value}))
    assert str(refused.value).startswith(f"E1104 InvalidArgument: {part}")


@given(
    st.lists(
        st.builds(
            Tensor,
            st.sampled_from([s.name for s in INPUTS]),
            st.sampled_from(["INT32", "FP32", "BOOL"]),
            st.lists(st.integers(-1, 3), max_size=3).map(tuple),
            st.binary(max_size=12),
        )
    )
)
@example([Tensor("input_ids", "INT32", (1, -1), b"")])
@example([Tensor("input_ids", "INT32", (1, 1 << 62), b"")])
def test_any_tensors_are_a_request_or_a_coded_error(tensors):
    try:
        decode_request(frame(PLAIN, *tensors))
    except (MalformedRequest, TensorNotSupported):
        pass


def test_every_tensor_stands_once_in_the_table():
    names = [spec.name for spec in (*INPUTS, *OUTPUTS)]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("kind", "text", "error"),
    [
        ("regex", "", MalformedRequest),
        ("", "a", MalformedRequest),
        ("structural_tag", "{}", TensorNotSupported),
        ("jsn_schema", "{}", MalformedRequest),
    ],
)
def test_a_structure_has_a_kind_that_there_is_and_a_text(kind, text, error):
    structure = StructuredOutput(kind, text)
    with pytest.raises(error, match="guided_decoding_guide"):
        decode_request(frame(replace(PLAIN, structured_output=structure)))


def test_words_are_written_as_tensorrt_llm_reads_them():
    request = Request(1, [5], 4, stop_words=[[10, 11], [12]])
    (words,) = [raw for raw in request_tensors(request) if raw.name == "stop_words_list"]
    assert words.shape == (1, 2, 3)
    assert struct.unpack("<6i", words.data) == (10, 11, 12, 2, 3, -1)


def test_a_padded_prompt_is_cut_to_its_length():
    padded = frame(PLAIN, int32("input_ids", 5, 6, 0, 0), int32("input_lengths", 2))
    assert decode_request(padded).input_token_ids == [5, 6]


def test_end_id_minus_one_is_none():
    assert decode_request(frame(PLAIN, int32("end_id", -1))).end_ids == frozenset()


def test_streaming_is_off_when_it_is_not_said():
    assert not decode_request(frame(PLAIN, without="streaming")).streaming


@pytest.mark.parametrize(
    "unset", [fp32("runtime_top_p", 0), int32("runtime_top_k", -1), int32("min_tokens", -1)]
)
def test_values_that_stand_for_not_set_set_nothing(unset):
    assert decode_request(frame(PLAIN, unset)).sampling == SamplingParameters()


@pytest.mark.parametrize(
    ("tensor", "part"),
    [
        (int32("input_ids", shape=(1, 0)), "input_ids is missing or empty"),
        (int32("input_ids", 5, -1, 7), "input_ids has a negative id"),
        (int32("input_ids", 5, 6, 7, shape=(3, 1)), "input_ids has the shape [3, 1], not [1, -1]"),
        (int32("input_ids", 5, 6, 7, shape=(1, 4)), "input_ids has 12 bytes, not 16"),
        (fp32("input_ids", 1), "input_ids is FP32, not INT32"),
        (int32("input_lengths", 4), "input_lengths is 4, but input_ids has 3 ids"),
        (int32("request_output_len", 0), "request_output_len is 0"),
        (int32("no_such_input", 1), "there is no input 'no_such_input'"),
        (fp32("temperature", math.nan), "temperature is nan"),
        (fp32("temperature", math.inf), "temperature is inf"),
        (fp32("temperature", -1), "temperature is -1"),
        (fp32("repetition_penalty", 0), "repetition_penalty is 0"),
        (fp32("runtime_top_p", 1.5), "runtime_top_p is 1.5"),
        (int32("stop_words_list", 1, 2, 3, -1, shape=(1, 2, 2)), "stop_words_list does not say"),
        (int32("stop_words_list", 1, 2, 2, 1, shape=(1, 2, 2)), "stop_words_list does not say"),
        (int32("stop_words_list", -7, 1, shape=(1, 2, 1)), "stop_words_list has a negative id"),
    ],
)
def test_what_breaks_the_contract_is_refused(tensor, part):
    with pytest.raises(MalformedRequest) as refused:
        decode_request(frame(PLAIN, tensor))
    assert part in str(refused.value)


@pytest.mark.parametrize("name", ["input_ids", "input_lengths", "request_output_len"])
def test_what_must_be_there_is_missed(name):
    with pytest.raises(MalformedRequest, match=f"{name} is missing"):
        decode_request(frame(PLAIN, without=name))


@pytest.mark.parametrize(
    "tensor",
    [
        int32("beam_width", 4),
        int32("num_return_sequences", 2),
        boolean("return_log_probs", True),
        boolean("exclude_input_in_output", False),
        boolean("stop", True),
        int32("lookahead_window_size", 2),
    ],
)
def test_asking_for_what_is_not_supported_is_refused(tensor):
    with pytest.raises(TensorNotSupported, match=tensor.name):
        decode_request(frame(PLAIN, tensor))


@pytest.mark.parametrize(
    "tensor",
    [
        int32("beam_width", 1),
        int32("bad_words_list", shape=(1, 2, 0)),
        boolean("return_log_probs", False),
        boolean("exclude_input_in_output", True),
        boolean("early_stopping", True),
        int32("pad_id", 2),
        fp32("runtime_top_p_decay", 1),
    ],
)
def test_asking_for_nothing_is_accepted(tensor):
    assert decode_request(frame(PLAIN, tensor)) == decode_request(frame(PLAIN))
