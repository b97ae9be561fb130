"""The mapping from Llama, Mistral and Qwen2 checkpoints to CTranslate2's decoder.

The three name their tensors alike; they differ in biases and in the sliding window, which are in
`Hyperparameters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec, attention_spec, common_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .hyperparameters import Hyperparameters, RopeScaling
    from .variables import Variables

_SCALING_TYPES = {
    "linear": attention_spec.RotaryScalingType.Linear,
    "llama3": attention_spec.RotaryScalingType.Llama3,
}


def make_model(
    hyperparameters: Hyperparameters, variables: Variables, vocabulary: Sequence[str]
) -> TransformerDecoderModelSpec:
    """The model, ready to be saved; saving reads its weights.

    Raises CheckpointInvalid if the tensors do not fit `hyperparameters`.
    """
    h = hyperparameters
    spec = _empty_spec(h)
    decoder = spec.decoder
    decoder.scale_embeddings = False
    variables.linear(decoder.embeddings, {"model.embed_tokens": h.vocab_size}, h.hidden_size)
    variables.norm(decoder.layer_norm, "model.norm", h.hidden_size)
    if h.tie_word_embeddings:
        decoder.projection.weight = decoder.embeddings.weight
    else:
        variables.linear(decoder.projection, {"lm_head": h.vocab_size}, h.hidden_size)
    for index, layer in enumerate(decoder.layer):
        _set_layer(layer, f"model.layers.{index}", h, variables)
    spec.register_vocabulary(vocabulary)
    spec.config.layer_norm_epsilon = h.rms_norm_eps
    # CTranslate2 does not read these two; the engine does.
    spec.config.add_attribute("max_position_embeddings", h.max_position_embeddings)
    spec.config.add_attribute("sliding_window", h.sliding_window)
    # The engine passes its end tokens with every request, and knows every token. These three only have to be
    # in the vocabulary: otherwise CTranslate2 would add them.
    spec.config.unk_token = spec.config.bos_token = spec.config.eos_token = vocabulary[0]
    spec.validate()
    if h.tie_word_embeddings:
        # The name of a variable is an alias. `validate` would take it for a value.
        decoder.projection.weight = "decoder/embeddings/weight"
    return spec


def _empty_spec(h: Hyperparameters) -> TransformerDecoderModelSpec:
    scaling = h.rope_scaling
    spec = TransformerDecoderModelSpec.from_config(
        num_layers=h.num_hidden_layers,
        num_heads=h.num_attention_heads,
        num_heads_kv=h.num_key_value_heads if h.num_key_value_heads != h.num_attention_heads else None,
        head_dim=h.head_dim if h.head_dim * h.num_attention_heads != h.hidden_size else None,
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=h.rope_theta,
        rotary_scaling_type=_SCALING_TYPES[scaling.kind] if scaling else None,
        rotary_scaling_factor=scaling.factor if scaling else 1,
        original_max_position_embeddings=scaling.original_max_position_embeddings if scaling else 0,
        sliding_window=h.sliding_window,
    )
    if scaling and scaling.kind == "llama3":
        for layer in spec.decoder.layer:
            _set_llama3_scaling(layer.self_attention, scaling)
    return spec


def _set_llama3_scaling(attention: Any, scaling: RopeScaling) -> None:
    attention.rotary_low_freq_factor = np.float32(scaling.low_freq_factor)
    attention.rotary_high_freq_factor = np.float32(scaling.high_freq_factor)
    # The library reads the factor, but its specification of llama3 lacks it and accepts no new names.
    vars(attention)["rotary_scaling_factor"] = np.float32(scaling.factor)


def _set_layer(layer: Any, prefix: str, h: Hyperparameters, variables: Variables) -> None:
    query = h.num_attention_heads * h.head_dim
    key_value = h.num_key_value_heads * h.head_dim
    attention, feed_forward = layer.self_attention, layer.ffn

    variables.norm(attention.layer_norm, f"{prefix}.input_layernorm", h.hidden_size)
    variables.linear(
        attention.linear[0],
        {
            f"{prefix}.self_attn.q_proj": query,
            f"{prefix}.self_attn.k_proj": key_value,
            f"{prefix}.self_attn.v_proj": key_value,
        },
        h.hidden_size,
        bias=h.query_key_value_bias,
    )
    variables.linear(
        attention.linear[1],
        {f"{prefix}.self_attn.o_proj": h.hidden_size},
        query,
        bias=h.attention_output_bias,
    )

    variables.norm(feed_forward.layer_norm, f"{prefix}.post_attention_layernorm", h.hidden_size)
    for spec, module in ((feed_forward.linear_0, "gate_proj"), (feed_forward.linear_0_noact, "up_proj")):
        variables.linear(
            spec, {f"{prefix}.mlp.{module}": h.intermediate_size}, h.hidden_size, bias=h.mlp_bias
        )
    variables.linear(
        feed_forward.linear_1,
        {f"{prefix}.mlp.down_proj": h.hidden_size},
        h.intermediate_size,
        bias=h.mlp_bias,
    )
