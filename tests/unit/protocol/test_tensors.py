"""What is said of a sampling parameter that is out of its range."""

import struct

import pytest

from runner.protocol.frames import RequestFrame, Tensor
from runner.protocol.tokens import decode_request
from shared.errors import MalformedRequest


def tensor(name: str, datatype: str, form: str, number: float) -> Tensor:
    return Tensor(name, datatype, (1, 1), struct.pack(form, number))


@pytest.mark.parametrize(
    ("name", "number", "told"),
    [
        ("temperature", -1, "temperature is -1, but must be at least 0 and finite"),
        ("temperature", float("inf"), "temperature is inf, but must be at least 0 and finite"),
        ("temperature", float("nan"), "temperature is nan, but must be at least 0 and finite"),
        ("runtime_top_p", 2, "runtime_top_p is 2, but must be at most 1 and finite"),
        ("runtime_top_p", float("-inf"), "runtime_top_p is -inf, but must be at most 1 and finite"),
        ("repetition_penalty", 0, "repetition_penalty is 0, but must be above 0 and finite"),
        ("presence_penalty", float("inf"), "presence_penalty is inf, but must be finite"),
        ("min_p", 2, "min_p is 2, but must be at least 0 and at most 1"),
    ],
)
def test_a_number_out_of_range(name, number, told):
    numbers = [tensor(one, "INT32", "<i", 1) for one in ("input_ids", "input_lengths", "request_output_len")]
    with pytest.raises(MalformedRequest) as refused:
        decode_request(RequestFrame(1, "", (*numbers, tensor(name, "FP32", "<f", number))))
    assert refused.value.details["reason"] == told


@pytest.mark.parametrize("number", [-1, 256, 2**31 - 1])
def test_more_log_probabilities_than_an_output_has_room_for(number):
    names = ("input_ids", "input_lengths", "request_output_len")
    tensors = [tensor(one, "INT32", "<i", 1) for one in names]
    with pytest.raises(MalformedRequest) as refused:
        decode_request(RequestFrame(1, "", (*tensors, tensor("log_probs", "INT32", "<i", number))))
    assert refused.value.details["reason"] == (
        f"log_probs is {number}, but must be at least 0 and at most 255"
    )
