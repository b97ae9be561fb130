"""Tiny checkpoints with random weights, and their conversion in the engine's environment."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE

from shared.layout import PROJECT_ROOT, Layout

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": 100,
}


def make_weights(config: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Tensors [output, input] as `config` asks for; embeddings are large, so that one token stands out."""
    random = np.random.default_rng(seed)
    hidden, middle = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    query, key = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.normal(0, 2 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    def vector(size: int, mean: float) -> np.ndarray:
        return random.normal(mean, 0.3, size).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": matrix(config["vocab_size"], hidden),
        "model.norm.weight": vector(hidden, 1),
    }
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = matrix(config["vocab_size"], hidden)
    qwen2 = config["architectures"] == ["Qwen2ForCausalLM"]
    biased = {
        "attn": config.get("attention_bias", False) or qwen2,
        "o": config.get("attention_bias", False),
        "mlp": config.get("mlp_bias", False),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        weights[f"{prefix}.input_layernorm.weight"] = vector(hidden, 1)
        weights[f"{prefix}.post_attention_layernorm.weight"] = vector(hidden, 1)
        for module, rows, columns, bias in (
            ("self_attn.q_proj", query, hidden, "attn"),
            ("self_attn.k_proj", key, hidden, "attn"),
            ("self_attn.v_proj", key, hidden, "attn"),
            ("self_attn.o_proj", hidden, query, "o"),
            ("mlp.gate_proj", middle, hidden, "mlp"),
            ("mlp.up_proj", middle, hidden, "mlp"),
            ("mlp.down_proj", hidden, middle, "mlp"),
        ):
            weights[f"{prefix}.{module}.weight"] = matrix(rows, columns)
            if biased[bias]:
                weights[f"{prefix}.{module}.bias"] = vector(rows, 0)
    return weights


def write_tokenizer(directory: Path, size: int) -> None:
    Tokenizer(BPE({f"t{token_id}": token_id for token_id in range(size)}, [])).save(
        str(directory / "tokenizer.json")
    )


def write_checkpoint(directory: Path, dtype: Any = ml_dtypes.bfloat16, **changes: Any) -> Path:
    """A checkpoint of `CONFIG` with `changes`, in one file."""
    config = CONFIG | changes
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    write_tokenizer(directory, config["vocab_size"] - 3)
    weights = {name: tensor.astype(dtype) for name, tensor in make_weights(config).items()}
    save_file(weights, directory / "model.safetensors")
    return directory


def convert(model: Path, output: Path, quantization: str = "float32") -> subprocess.CompletedProcess[str]:
    """Run the conversion as the builder does."""
    arguments = ["--model", str(model), "--output", str(output), "--quantization", quantization]
    return subprocess.run(
        [engine_python(), "-m", "builder.engines.ctranslate2", *arguments],
        env=os.environ | {"PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def engine_python() -> Path:
    return Layout.current().engine_python("ctranslate2")
