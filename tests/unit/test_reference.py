"""The numpy Llama against figures that PyTorch gave: transformers 5.23 in float32, same config, same weights."""

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.reference.llama import Reference

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "vocab_size": 24,
    "tie_word_embeddings": True,
    "eos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
TOKENS = [(7 * i * i + 3 * i) % 24 for i in range(100)]
# The last token's first four logits.
CASES: dict[str, tuple[dict[str, Any], list[float]]] = {
    "tied": ({}, [6.25127, 5.96777, 5.56363, 5.04703]),
    "head": ({"tie_word_embeddings": False}, [-1.5501, -1.68506, -1.78596, -1.85076]),
    "linear": (
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        [6.24424, 5.96013, 5.55554, 5.03865],
    ),
    "llama3": ({"rope_scaling": LLAMA3}, [5.70363, 5.41924, 5.0253, 4.52978]),
    "qwen2": ({"model_type": "qwen2", "num_key_value_heads": 4}, [4.52281, 4.5449, 4.47511, 4.31487]),
}


def formula_weights(config):
    """Weights that any library computes alike: sines, so that no generator of random numbers is part of the test."""
    hidden, mlp, head_dim = config["hidden_size"], config["intermediate_size"], 8
    queries, keys = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
            prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "mlp.gate_proj.weight": (mlp, hidden),
            prefix + "mlp.up_proj.weight": (mlp, hidden),
            prefix + "mlp.down_proj.weight": (hidden, mlp),
        }
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            shapes[f"{prefix}self_attn.{name}.weight"] = (rows, hidden)
            if config["model_type"] == "qwen2":
                shapes[f"{prefix}self_attn.{name}.bias"] = (rows,)
    weights = {}
    for i, (name, shape) in enumerate(sorted(shapes.items())):
        steps = np.arange(np.prod(shape), dtype=np.float64)
        weights[name] = (
            (0.4 * np.sin(steps * (1.37 + i) + i) + ("norm" in name)).astype(np.float32).reshape(shape)
        )
    return weights


@pytest.fixture
def reference(tmp_path, request):
    config = CONFIG | CASES[getattr(request, "param", "tied")][0]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(formula_weights(config), tmp_path / "model.safetensors")
    return Reference(tmp_path)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(name, expected) for name, (_, expected) in CASES.items()],
    indirect=["reference"],
    ids=list(CASES),
)
def test_logits_are_those_of_pytorch(reference, expected):
    assert reference.logits(TOKENS)[-1, :4] == pytest.approx(expected, abs=1e-4)


def test_tokens_one_by_one_give_the_logits_of_all_at_once(reference):
    cache = reference.empty_cache()
    one_by_one = [reference.logits([token], cache)[0] for token in TOKENS[:20]]
    np.testing.assert_allclose(one_by_one, reference.logits(TOKENS[:20]), atol=1e-5)


def test_greedy_takes_the_likeliest_token_each_time(reference):
    output = reference.greedy(TOKENS[:5], 6, ())
    for i, token in enumerate(output):
        assert token == reference.logits([*TOKENS[:5], *output[:i]])[-1].argmax()
    assert len(output) == 6


def test_greedy_ends_before_an_end_id(reference):
    output = reference.greedy(TOKENS[:5], 6, ())
    end = output[3]
    assert reference.greedy(TOKENS[:5], 6, {end}) == output[: output.index(end)]


def test_margins_are_the_gaps_between_best_and_second(reference):
    output = reference.greedy(TOKENS[:5], 3, ())
    logits = np.sort(reference.logits([*TOKENS[:5], *output])[4:7], axis=-1)
    np.testing.assert_allclose(
        reference.margins(TOKENS[:5], output), logits[:, -1] - logits[:, -2], atol=1e-5
    )


def test_an_unknown_rope_scaling_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"rope_scaling": {"rope_type": "yarn"}}))
    with pytest.raises(NotImplementedError, match="yarn"):
        Reference(tmp_path)
