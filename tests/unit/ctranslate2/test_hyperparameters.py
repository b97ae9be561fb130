from __future__ import annotations

import pytest

from builder.engines.ctranslate2.hyperparameters import RopeScaling, read_hyperparameters
from shared.errors import CheckpointInvalid, UnsupportedArchitecture
from tests.unit.ctranslate2.checkpoints import CONFIG

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**changes):
    return read_hyperparameters(CONFIG | changes)


@pytest.mark.parametrize("architectures", [["GemmaForCausalLM"], [["a"]]])
def test_another_architecture_is_refused_by_name(architectures):
    with pytest.raises(
        UnsupportedArchitecture, match="LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM"
    ):
        read(architectures=architectures)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        *(
            ({"architectures": other}, "has no list of architectures")
            for other in ([], None, "LlamaForCausalLM")
        ),
        ({"hidden_size": None}, "config.json has no hidden_size"),
        ({"num_hidden_layers": "2"}, 'num_hidden_layers in config.json is "2"'),
        ({"num_attention_heads": 0}, "num_attention_heads in config.json is 0"),
        ({"head_dim": 10**18}, "head_dim in config.json is 1000000000000000000"),
        ({"rms_norm_eps": -1}, "rms_norm_eps in config.json is -1"),
        ({"rope_theta": float("nan")}, "rope_theta in config.json is NaN"),
        ({"hidden_size": 3, "head_dim": None}, "hidden_size is 3, less than num_attention_heads"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "not a multiple of num_key_value_heads 3"),
        ({"head_dim": 15}, "even head_dim, but it is 15"),
        ({"hidden_act": "gelu"}, '"gelu" is not supported'),
        ({"quantization_config": {"quant_method": "awq"}}, "already quantized"),
        ({"use_sliding_window": True}, "sliding window"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, '"yarn" is not supported'),
        ({"rope_scaling": {"type": "su"}}, '"su" is not supported'),
        ({"rope_parameters": {"rope_type": "longrope"}}, '"longrope" is not supported'),
        ({"rope_scaling": {"type": "linear"}}, "config.json has no factor"),
        ({"rope_scaling": {"factor": 8.0}}, "a factor of its rotary positions, but no rope_type"),
        ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": None}}, "original_max"),
    ],
)
def test_what_cannot_be_converted_is_said(changes, reason):
    with pytest.raises(CheckpointInvalid, match=reason):
        read(**changes)


def test_rotary_settings_are_found_in_their_old_place():
    found = read(rope_theta=5e5, rope_scaling=LLAMA3)
    assert found.rope_theta == 5e5
    assert found.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)


def test_null_is_as_good_as_nothing():
    found = read(rope_theta=None, rope_scaling=None, partial_rotary_factor=None)
    assert (found.rope_theta, found.rope_scaling) == (10_000.0, None)


def test_rotary_settings_are_found_in_their_new_place():
    config = {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    found = read_hyperparameters(config | {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}})
    assert found.rope_theta == 5e5
    assert found.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)


@pytest.mark.parametrize(
    ("written", "window"), [({}, 4096), ({"sliding_window": None}, None), ({"sliding_window": 8}, 8)]
)
def test_mistral_has_a_sliding_window_unless_it_says_no(written, window):
    assert read(architectures=["MistralForCausalLM"], **written).sliding_window == window


def test_llama_has_no_sliding_window():
    assert read(sliding_window=8).sliding_window is None


def test_qwen2_has_biases_on_query_key_and_value_only():
    found = read(architectures=["Qwen2ForCausalLM"])
    assert (found.query_key_value_bias, found.attention_output_bias, found.mlp_bias) == (True, False, False)


def test_head_dim_and_key_value_heads_follow_from_the_others():
    assert read(hidden_size=2, num_attention_heads=4, head_dim=8).head_dim == 8
    found = read(num_key_value_heads=None, head_dim=None)
    assert (found.head_dim, found.num_key_value_heads) == (16, 4)
