"""Which layers of a model keep all tokens, as the config.json of models that people have says it."""

from __future__ import annotations

import pytest

from builder.check.kv_cache import cache_needs


def layers(count, kept, dimension, **others):
    return {
        "num_hidden_layers": count,
        "num_attention_heads": 32,
        "num_key_value_heads": kept,
        "head_dim": dimension,
    } | others


# What config.json says of layers, as these models were published, and how many of them keep all tokens.
KEEP_ALL = {
    "gemma-2-9b": (layers(42, 8, 256, model_type="gemma2", sliding_window=4096), 21),
    "gemma-3-27b": (layers(62, 16, 128, model_type="gemma3_text", sliding_window=1024), 10),
    "gemma-3-1b": (layers(26, 1, 256, sliding_window=512, sliding_window_pattern=6), 4),
    "gemma-3n, which shares": (layers(35, 2, 256, model_type="gemma3n_text", num_kv_shared_layers=15), 4),
    "c4ai-command-r7b": (layers(32, 8, 128, model_type="cohere2", sliding_window=4096), 8),
    "Llama-4-Scout": (layers(48, 8, 128, model_type="llama4_text", attention_chunk_size=8192), 12),
    "Qwen3-Next-80B": (layers(48, 2, 256, full_attention_interval=4, linear_key_head_dim=128), 12),
    "Jamba-v0.1": (layers(32, 8, 128, attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16), 4),
    "Bamba-9B": (layers(32, 8, 128, attn_layer_indices=[9, 18, 27], mamba_d_state=256), 3),
    "Nemotron-H": (layers(8, 8, 128, hybrid_override_pattern="M-M*-M-*"), 2),
    "MiniMax-Text-01": (layers(4, 8, 128, attn_type_list=[0, 0, 0, 1]), 1),
    "granite-4": (layers(3, 8, 128, layer_types=["mamba", "mamba", "attention"], mamba_d_state=128), 1),
    "LFM2-1.2B": (layers(16, 8, 64, full_attn_idxs=[2, 5, 8, 10, 12, 14]), 6),
    "Zamba2": (layers(3, 8, 128, layers_block_type=["mamba", "hybrid", "mamba"]), 1),
    "Mistral-7B-v0.1": (layers(32, 8, 128, sliding_window=4096), 0),
    "Qwen2.5": (layers(28, 4, 128, sliding_window=131072, use_sliding_window=False), 28),
    # These have more kinds of layers than are understood: nothing is claimed, and nothing refused.
    "Nemotron-Super": (layers(80, None, 128, block_configs=[{}]), 0),
    "MiMo-V2": (layers(48, 4, 192, hybrid_layer_pattern=[0, 1], swa_num_key_value_heads=8), 0),
    "falcon-7b": (layers(32, None, 64, multi_query=True), 0),
    "a later one": (layers(2, 8, 128, layer_types=["full_attention", "something_new"]), 0),
    "RecurrentGemma": (layers(26, 1, 256, block_types=["recurrent", "recurrent", "attention"]), 0),
    "EXAONE-4 without a list": (layers(64, 8, 128, sliding_window=4096, sliding_window_pattern="LLLG"), 0),
    "more layers than there can be": (layers(10**9, 8, 128), 0),
    "a hostile one": (layers(2, [], "x", layer_types=[[], {}]), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEP_ALL)
def test_only_layers_that_keep_all_tokens_need_room_for_each(name):
    model, count = KEEP_ALL[name]
    kept = model["num_key_value_heads"]
    each = 2 * kept * model["head_dim"] * 2 if count else 0
    assert cache_needs(model, 16, 1, 1).per_token == count * each


@pytest.mark.parametrize("heads", [{"state_size": 16}, {"num_heads": 128, "head_dim": 64, "n_groups": 8}])
def test_a_model_without_attention_keeps_a_state_only(heads):
    model = {"num_hidden_layers": 64, "hidden_size": 4096} | heads  # falcon-mamba-7b, Mamba-Codestral-7B
    assert cache_needs(model, 16, 1, 1) == (0, 0)


def test_the_full_layers_of_gemma_4_have_heads_of_their_own():
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    own = {"num_global_key_value_heads": 4, "global_head_dim": 512, "sliding_window": 1024}
    model = layers(6, 16, 256, layer_types=kinds, **own)
    assert cache_needs(model, 16, 1, 1).per_token == 2 * 4 * 512 * 2
