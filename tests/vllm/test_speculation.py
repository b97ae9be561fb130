"""Speculative decoding: a step may give a request several tokens, of which some may be past its end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from runner.protocol.engine import FinishReason, SamplingParameters, StructuredOutput
from runner.text.tokenizer import Tokenizer
from shared.layout import PROJECT_ROOT
from tests.vllm.conftest import serving, write_engine
from tests.vllm.model import GREEDY_TOKENS, PROMPTS
from tests.vllm.test_engine import answer, ask, outputs
from tests.vllm.test_structured_output import held_to, texts_of

TOKENS = 40
MENDED = os.pathsep.join([str(Path(__file__).with_name("speculation")), str(PROJECT_ROOT)])


def worsen(weights: Path) -> None:
    """Leave out the last step of each layer, so that some guesses are wrong."""
    content = bytearray(weights.read_bytes())
    begin = 8 + int.from_bytes(content[:8], "little")
    for name, tensor in json.loads(content[8:begin]).items():
        if "mlp.down_proj" in name:
            first, last = tensor["data_offsets"]
            content[begin + first : begin + last] = bytes(last - first)
    weights.write_bytes(content)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    speculation = {"method": "draft_model", "model": "demo", "num_speculative_tokens": 4}
    directory = write_engine(
        tmp_path_factory.mktemp("speculation") / "engine", speculative_config=speculation
    )
    shutil.copytree(directory / "engine", directory / "draft")
    worsen(directory / "draft/model.safetensors")
    return directory


@pytest.fixture(scope="module")
def speculating(directory):
    with serving(directory, directory.with_name("log"), PYTHONPATH=MENDED) as (_, driver):
        yield driver


@pytest.fixture(scope="module")
def greedy(speculating):
    return answer(speculating, max_tokens=TOKENS)[0]


def test_the_tokens_are_those_of_an_engine_without_it(speculating, greedy_reference):
    requests = [ask(prompt, GREEDY_TOKENS) for prompt in PROMPTS]
    got = outputs(speculating, *requests)
    tokens = [[token for output in got[one.request_id] for token in output.tokens] for one in requests]
    assert tokens == greedy_reference
    steps = [len(output.tokens) for own in got.values() for output in own]
    assert {1, 5} <= set(steps)  # all guesses of a step were wrong, and all were right


@pytest.mark.parametrize("place", range(5, 15))
def test_a_text_ends_within_a_step(speculating, greedy, place):
    end = greedy.index(greedy[place])
    assert answer(speculating, max_tokens=place) == (greedy[:place], FinishReason.LENGTH)
    ends = {"end_ids": frozenset({greedy[place]}), "max_tokens": TOKENS}
    assert answer(speculating, **ends) == (greedy[:end], FinishReason.END_ID)
    assert len(answer(speculating, **ends, sampling=SamplingParameters(min_tokens=20))[0]) >= 20
    word = greedy[place : place + 3]
    last = next(n for n in range(3, TOKENS) if greedy[n - 3 : n] == word)
    assert answer(speculating, max_tokens=TOKENS, stop_words=[word]) == (
        greedy[:last],
        FinishReason.STOP_WORDS,
    )


def test_each_token_has_its_log_probability(speculating):
    request = ask(max_tokens=TOKENS, log_probs=2, sampling=SamplingParameters(top_p=1.0, seed=5))
    own = outputs(speculating, request)[request.request_id]
    assert sum(len(output.tokens) for output in own) == TOKENS
    assert all(len(output.log_probs) == len(output.tokens) for output in own)


def test_structures_are_followed(speculating, directory):
    tokenizer = Tokenizer.load(directory / "tokenizer")
    words = [f"number {n}" for n in range(20)]
    requests = [held_to(StructuredOutput("regex", word), sampling=SamplingParameters()) for word in words]
    assert texts_of(speculating, tokenizer, requests) == words
