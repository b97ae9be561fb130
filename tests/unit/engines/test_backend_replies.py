"""What clients of Triton's own vLLM backend ask of an engine, and are told of its outputs."""

from __future__ import annotations

import json
import re
import struct

import pytest

from runner.engines.backend_replies import decode_for_backend
from runner.protocol.engine import FinishReason, LogProbs, Output
from runner.protocol.frames import RequestFrame, Tensor
from runner.protocol.vllm import encode_tensors
from runner.text.tokenizer import Tokenizer
from shared.layout import PROJECT_ROOT


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.load(PROJECT_ROOT / "demo/model")


EXCLUDED = Tensor("exclude_input_in_output", "BOOL", (1,), b"\1")
RETURNED = tuple(
    Tensor(f"return_{name}", "BOOL", (1,), b"\1")
    for name in ("finish_reason", "logprobs", "num_output_tokens")
)


def text(name: str, value: str) -> Tensor:
    data = value.encode()
    return Tensor(name, "BYTES", (1,), struct.pack("<I", len(data)) + data)


def asked(tokenizer, *more: Tensor, **parameters):
    tensors = (text("text_input", "Once"), text("sampling_parameters", json.dumps(parameters)), *more)
    return decode_for_backend(RequestFrame(1, "", tensors), lambda: tokenizer)


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("is", ["is", " is"]),
        (" is", ["is", " is"]),
        ("little", ["little"]),  # within a text it has fewer tokens
        (" little", [" little"]),
        (" ", [" "]),
    ],
)
def test_a_bad_word_is_bad_within_a_text_too(tokenizer, word, forms):
    request, _ = asked(tokenizer, bad_words=[word])
    assert request.bad_words == [tokenizer.encode(form, add_special_tokens=False) for form in forms]


@pytest.mark.parametrize("stop", [None, "zzz", "ime"])
def test_a_stop_token_is_counted_and_is_no_text(tokenizer, stop):
    _, reply = asked(tokenizer, *RETURNED, EXCLUDED, stop=stop, stop_token_ids=[13])
    tokens = tokenizer.encode(" a time,", add_special_tokens=False)
    assert reply.take(Output(1, tokens[:1])) is None
    told = reply.take(Output(1, tokens[1:], FinishReason.STOP_WORDS))
    written = {"text_output": " a time"} if stop != "ime" else {"text_output": " a t"}
    counted = len(tokens) - (stop == "ime")
    assert told.tensors == encode_tensors(
        written | {"finish_reason": "stop", "logprobs": "null", "num_output_tokens": counted}
    )


@pytest.mark.parametrize("likeliest", [(), ((13, -0.5),), ((13, -0.5), (14, -1.5))])
def test_a_rank_is_that_among_all_tokens(tokenizer, likeliest):
    _, reply = asked(tokenizer, *RETURNED, EXCLUDED, logprobs=len(likeliest))
    told = reply.take(Output(1, [20], FinishReason.LENGTH, log_probs=[LogProbs(-9.0, likeliest, 77)]))
    ranks = {str(token): rank for rank, (token, _) in enumerate(likeliest, start=1)} | {"20": 77}
    (found,) = re.findall(rb"\[\{.*\}\]", told.tensors)
    assert [{token: one["rank"] for token, one in each.items()} for each in json.loads(found)] == [ranks]


@pytest.mark.parametrize(("least", "written"), [(-1, " a "), (0, " a "), (2, " a time,")])
def test_a_minimum_holds_stop_words_off(tokenizer, least, written):
    _, reply = asked(tokenizer, EXCLUDED, stop="time", min_tokens=least)
    told = reply.take(Output(1, tokenizer.encode(" a time,", add_special_tokens=False), FinishReason.LENGTH))
    assert told.tensors == encode_tensors({"text_output": written})
