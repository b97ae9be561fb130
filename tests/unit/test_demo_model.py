"""The committed model of the demo: its size, its files, and the text that it is known to write."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.reference.llama import Reference

DEMO = Path(__file__).parents[2] / "demo"
PROMPTS = json.loads((DEMO / "prompts.json").read_text(encoding="utf-8"))
REFERENCE = Reference(DEMO / "model")
TOKENIZER = Tokenizer.from_file(str(DEMO / "model" / "tokenizer.json"))
EOS: Any = TOKENIZER.token_to_id("</s>")


def test_the_files_are_small():
    assert sum(file.stat().st_size for file in (DEMO / "model").iterdir()) <= 3_000_000


def test_config_and_tokenizer_agree():
    config = REFERENCE.config
    generation = json.loads((DEMO / "model" / "generation_config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == TOKENIZER.get_vocab_size()
    assert config["bos_token_id"] == generation["bos_token_id"] == TOKENIZER.token_to_id("<s>")
    assert config["eos_token_id"] == generation["eos_token_id"] == EOS


def test_weights_have_the_shapes_of_the_config():
    config = REFERENCE.config
    assert REFERENCE.weights["model.embed_tokens.weight"].shape == (
        config["vocab_size"],
        config["hidden_size"],
    )
    key_rows = config["num_key_value_heads"] * config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        keys = REFERENCE.weights[f"model.layers.{layer}.self_attn.k_proj.weight"]
        assert keys.shape == (key_rows, config["hidden_size"])


@pytest.mark.parametrize(
    "prompt", PROMPTS, ids=lambda prompt: prompt["prompt"].encode("ascii", "ignore").decode()
)
def test_the_text_of_each_prompt_is_certain(prompt):
    tokens = TOKENIZER.encode(prompt["prompt"]).ids
    output = REFERENCE.greedy(tokens, prompt["max_tokens"], {EOS})
    ended = len(output) < prompt["max_tokens"]
    assert TOKENIZER.decode(output) == prompt["text"]
    assert prompt["finish_reason"] == ("END_ID" if ended else "LENGTH")
    # Far more than engines differ by in float32: none of them can choose another token.
    assert REFERENCE.margins(tokens, [*output, EOS] if ended else output).min() > 0.1


def test_prompts_cover_both_ends_and_text_beyond_ascii():
    assert {prompt["finish_reason"] for prompt in PROMPTS} == {"END_ID", "LENGTH"}
    assert sum(not prompt["text"].isascii() for prompt in PROMPTS) >= 3
    assert any(sign > "\uffff" for prompt in PROMPTS for sign in prompt["text"])


def test_the_demo_prompt_gives_a_few_whole_sentences():
    text = PROMPTS[0]["text"]
    assert 2 <= text.count(".") <= 4
    assert text.endswith(".")
    assert 40 <= len(TOKENIZER.encode(text, add_special_tokens=False).ids) <= 64


def test_prompts_of_several_hundred_tokens_are_answered():
    story = PROMPTS[0]["prompt"] + PROMPTS[0]["text"]
    question = next(prompt for prompt in PROMPTS if "dog" in prompt["prompt"])
    tokens = TOKENIZER.encode("\n\n".join([story] * 12) + "\n\n" + question["prompt"]).ids
    assert len(tokens) > 600
    assert TOKENIZER.decode(REFERENCE.greedy(tokens, 64, {EOS})) == question["text"]


@given(st.text().filter(lambda text: "<s>" not in text and "</s>" not in text))
def test_any_text_survives_the_tokenizer(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text
