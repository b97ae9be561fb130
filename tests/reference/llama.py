"""The Llama architecture in plain numpy and float32: the greedy text of every engine is compared with it.

Written from the architecture's definition (RMSNorm, rotary embeddings in the `rotate_half` layout, grouped-query
attention, SwiGLU) and from the meaning of the fields of a Hugging Face config.json. It covers `llama`, `mistral`
(sliding window) and `qwen2` (attention biases) checkpoints, tied embeddings, and rope scaling of types `default`,
`linear` and `llama3`.

`python -m tests.reference.llama demo/model demo/prompts.json` writes the texts of the demo's prompts anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes  # noqa: F401 (teaches numpy the bfloat16 that safetensors reads into)
import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Cache = list[tuple[Floats, Floats]]


class Reference:
    """The checkpoint in `model_dir`: config.json and *.safetensors."""

    def __init__(self, model_dir: Path) -> None:
        self.config: dict[str, Any] = json.loads((model_dir / "config.json").read_text(encoding="utf-8"))
        self.weights: dict[str, Floats] = {
            name: tensor.astype(np.float32)
            for file in sorted(model_dir.glob("*.safetensors"))
            for name, tensor in load_file(file).items()
        }
        self.heads: int = self.config["num_attention_heads"]
        self.kv_heads: int = self.config.get("num_key_value_heads") or self.heads
        self.head_dim: int = self.config.get("head_dim") or self.config["hidden_size"] // self.heads
        self.frequencies = rope_frequencies(self.config, self.head_dim)
        windowed = self.config.get("model_type") == "mistral" and self.config.get("sliding_window")
        self.window: float = windowed or np.inf  # how many tokens a token sees, itself among them

    def greedy(self, input_token_ids: Sequence[int], max_tokens: int, end_ids: Collection[int]) -> list[int]:
        """The likeliest continuation, without the end id that may have ended it."""
        cache = self.empty_cache()
        output: list[int] = []
        tokens = list(input_token_ids)
        while len(output) < max_tokens:
            token = int(self.logits(tokens, cache)[-1].argmax())
            if token in end_ids:
                break
            output.append(token)
            tokens = [token]
        return output

    def margins(self, input_token_ids: Sequence[int], output_token_ids: Sequence[int]) -> Floats:
        """How far the best logit is ahead of the second at each choice that gave `output_token_ids`."""
        choices = self.logits([*input_token_ids, *output_token_ids[:-1]])[len(input_token_ids) - 1 :]
        ranked: Floats = np.sort(choices, axis=-1)
        return ranked[:, -1] - ranked[:, -2]

    def empty_cache(self) -> Cache:
        """Keys and values [kv_heads, 0, head_dim] of each layer."""
        nothing = np.zeros((self.kv_heads, 0, self.head_dim), np.float32)
        return [(nothing, nothing)] * int(self.config["num_hidden_layers"])

    def logits(self, token_ids: Sequence[int], cache: Cache | None = None) -> Floats:
        """Logits [len(token_ids), vocab_size] of tokens that follow those in `cache`, which grows by them."""
        cache = self.empty_cache() if cache is None else cache
        x = self.weights["model.embed_tokens.weight"][list(token_ids)]
        for layer in range(len(cache)):
            prefix = f"model.layers.{layer}."
            normed = self.norm(x, prefix + "input_layernorm")
            x = x + self.attention(normed, prefix + "self_attn.", cache, layer)
            x = x + self.mlp(self.norm(x, prefix + "post_attention_layernorm"), prefix + "mlp.")
        tied = self.config.get("tie_word_embeddings", False)
        return self.linear(self.norm(x, "model.norm"), "model.embed_tokens" if tied else "lm_head")

    def linear(self, x: Floats, name: str) -> Floats:
        y = x @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, x: Floats, name: str) -> Floats:
        variance = np.mean(x * x, axis=-1, keepdims=True)
        normed: Floats = x / np.sqrt(variance + np.float32(self.config["rms_norm_eps"]))
        return normed * self.weights[name + ".weight"]

    def mlp(self, x: Floats, prefix: str) -> Floats:
        gate, up = self.linear(x, prefix + "gate_proj"), self.linear(x, prefix + "up_proj")
        silu = gate * (1 + np.tanh(gate / 2)) / 2
        return self.linear(silu * up, prefix + "down_proj")

    def attention(self, x: Floats, prefix: str, cache: Cache, layer: int) -> Floats:
        count, past = len(x), cache[layer][0].shape[1]
        queries, keys, values = (
            self.linear(x, prefix + name).reshape(count, -1, self.head_dim).swapaxes(0, 1)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        angles = np.outer(np.arange(past, past + count), np.tile(self.frequencies, 2))
        cos, sin = np.cos(angles, dtype=np.float32), np.sin(angles, dtype=np.float32)
        keys = np.concatenate([cache[layer][0], rotate(keys, cos, sin)], axis=1)
        values = np.concatenate([cache[layer][1], values], axis=1)
        cache[layer] = keys, values

        # [kv_heads, queries of one key, count, head_dim]
        grouped = rotate(queries, cos, sin).reshape(self.kv_heads, -1, count, self.head_dim)
        scores = grouped @ keys[:, None].swapaxes(2, 3) / np.float32(np.sqrt(self.head_dim))
        distance = np.arange(past, past + count)[:, None] - np.arange(past + count)
        scores[..., (distance < 0) | (distance >= self.window)] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = (weights @ values[:, None]).reshape(self.heads, count, self.head_dim)
        return self.linear(attended.swapaxes(0, 1).reshape(count, -1), prefix + "o_proj")


def rotate(x: Floats, cos: Floats, sin: Floats) -> Floats:
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def rope_frequencies(config: dict[str, Any], head_dim: int) -> Floats:
    """Radians per position of each pair of dimensions: [head_dim / 2]."""
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = scaling.get("rope_theta") or config.get("rope_theta", 10000.0)
    frequencies: Floats = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    match scaling.get("rope_type") or scaling.get("type") or "default":
        case "default":
            pass
        case "linear":
            frequencies /= scaling["factor"]
        case "llama3":
            # Waves that turn often within the original context stay, slow ones are stretched; a ramp is
            # between.
            turns = scaling["original_max_position_embeddings"] * frequencies / (2 * np.pi)
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            kept = np.clip((turns - low) / (high - low), 0, 1)
            frequencies *= kept + (1 - kept) / scaling["factor"]
        case other:
            raise NotImplementedError(f"rope scaling of type {other}")
    return frequencies


def answer_prompts(model_dir: Path, prompts_file: Path) -> None:
    """Fill in `text` and `finish_reason` of every prompt."""
    reference = Reference(model_dir)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    prompts = json.loads(prompts_file.read_text(encoding="utf-8"))
    for prompt in prompts:
        output = reference.greedy(
            tokenizer.encode(prompt["prompt"]).ids, prompt["max_tokens"], {reference.config["eos_token_id"]}
        )
        prompt["text"] = tokenizer.decode(output)
        prompt["finish_reason"] = "LENGTH" if len(output) == prompt["max_tokens"] else "END_ID"
    prompts_file.write_text(json.dumps(prompts, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    answer_prompts(Path(sys.argv[1]), Path(sys.argv[2]))
