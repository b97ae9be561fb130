"""The CTranslate2 engine through the whole stack gives, token for token, what plain numpy gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tokenizers

from builder.pipeline import build
from demo.cog_client import PredictionClient
from shared.errors import ParameterNotHonoured, PromptTooLong
from tests.integration.conftest import cog_server
from tests.reference.llama import Reference
from tests.support.load import run_streams

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "demo/model"
PROMPTS = json.loads((ROOT / "demo/prompts.json").read_text())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("greedy")
    config = directory / "config.yaml"
    config.write_text(f"engine: ctranslate2\nmodel: {MODEL}\nquantization: float32\n")
    build(str(config), directory / "engine.tar")
    environment = {"COG_WEIGHTS": str(directory / "engine.tar"), "WEIGHTS_CACHE": str(directory / "weights")}
    # Cog gives a slot back some time after the answer: hence many more than 16.
    with cog_server("runner", directory / "log", concurrency=64, **environment) as server:
        yield server


@pytest.fixture(scope="module")
def expected():
    """The text of each prompt, from the numpy reference, and how many tokens it has."""
    reference = Reference(MODEL)
    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    end_id = json.loads((MODEL / "generation_config.json").read_text())["eos_token_id"]
    results = []
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt["prompt"]).ids
        tokens = reference.greedy(ids, prompt["max_tokens"], {end_id})
        results.append((tokenizer.decode(tokens), len(tokens)))
    return results


def greedy(prompt: dict) -> dict:
    return {"prompt": prompt["prompt"], "max_tokens": prompt["max_tokens"], "temperature": 0}


def test_alone(server, expected):
    assert len(PROMPTS) >= 20
    client = PredictionClient(server.url)
    for prompt, (text, count) in zip(PROMPTS, expected, strict=True):
        answer = client.predict(greedy(prompt))
        assert "".join(answer["output"]) == text == prompt["text"]
        assert answer["metrics"]["output_token_count"] == count


def test_16_in_parallel(server, expected):
    for start in range(0, len(PROMPTS), 16):
        batch = PROMPTS[start : start + 16]
        streams = run_streams(server.url, [greedy(prompt) for prompt in batch])
        for stream, (text, count) in zip(streams, expected[start : start + 16], strict=True):
            assert stream.result["status"] == "succeeded", stream.result
            assert stream.text == text
            assert stream.result["metrics"]["output_token_count"] == count


def test_a_stop_sequence_cuts_the_text(server, expected):
    text, _ = expected[0]
    stop = text.split(".")[1][:8]
    answer = PredictionClient(server.url).predict(
        {**greedy(PROMPTS[0]), "stop_sequences": json.dumps([stop])}
    )
    assert "".join(answer["output"]) == text[: text.index(stop)]


@pytest.mark.parametrize("unknown", [{"seed": 1}, {"presence_penalty": 0.5}, {"length_penalty": 2}])
def test_what_the_engine_cannot_honour_is_refused(server, unknown):
    with pytest.raises(ParameterNotHonoured):
        PredictionClient(server.url).predict({"prompt": "Once", "max_tokens": 2, **unknown})


def test_a_prompt_longer_than_the_context_is_refused(server):
    with pytest.raises(PromptTooLong):
        PredictionClient(server.url).predict({"prompt": "fox " * 5000})


def test_sampling_gives_different_texts(server):
    client = PredictionClient(server.url)
    texts = {"".join(client.text({"prompt": "Once", "max_tokens": 20, "temperature": 2})) for _ in range(4)}
    assert len(texts) > 1
