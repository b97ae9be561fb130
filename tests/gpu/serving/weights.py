"""Random weights of the model's shape in DIR: `python3 -m tests.gpu.serving.weights DIR [--rehearse]`

What vLLM makes up by itself (`load_format: dummy`) is another model for each number of GPUs: every worker fills its
share in the same way. These are the same weights however they are shared out, so that greedy tokens can be compared.
PyTorch and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from tests.gpu.serving.model import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAYERS_PER_FILE = 4
# One row of the output matrix in so many is not zero: of few tokens the likeliest is ahead of the others by more than
# sums in another order change.
_ROWS = 1000


def _tensors(shape: dict[str, int]) -> Iterator[dict[str, torch.Tensor]]:
    """Those of one file after the other, scaled so that each layer adds to what is there without drowning it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    chance = torch.Generator(device).manual_seed(1)

    def made(rows: int, columns: int, spread: float) -> torch.Tensor:
        matrix = torch.randn(rows, columns, generator=chance, device=device, dtype=torch.bfloat16)
        return (matrix * spread).cpu()

    hidden, between, layers = shape["hidden_size"], shape["intermediate_size"], shape["num_hidden_layers"]
    keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    head = made(shape["vocab_size"], hidden, hidden**-0.5)
    head[torch.arange(shape["vocab_size"]) % _ROWS != _ROWS // 2] = 0
    yield {
        "model.embed_tokens.weight": made(shape["vocab_size"], hidden, 1),
        "model.norm.weight": ones,
        "lm_head.weight": head,
    }
    for first in range(0, layers, _LAYERS_PER_FILE):
        tensors = {}
        for number in range(first, min(first + _LAYERS_PER_FILE, layers)):
            share = 1 / math.sqrt(2 * layers)
            layer = {
                "self_attn.q_proj": made(hidden, hidden, hidden**-0.5),
                "self_attn.k_proj": made(keys, hidden, hidden**-0.5),
                "self_attn.v_proj": made(keys, hidden, hidden**-0.5),
                "self_attn.o_proj": made(hidden, hidden, 2 * share * hidden**-0.5),
                "mlp.gate_proj": made(between, hidden, hidden**-0.5),
                "mlp.up_proj": made(between, hidden, hidden**-0.5),
                "mlp.down_proj": made(hidden, between, 2 * share * between**-0.5),
                "input_layernorm": ones.clone(),
                "post_attention_layernorm": ones.clone(),
            }
            tensors |= {f"model.layers.{number}.{name}.weight": tensor for name, tensor in layer.items()}
        yield tensors


def write_weights(directory: Path, *, rehearsal: bool = False) -> None:
    """As Hugging Face's files: several, and an index of them."""
    made = directory.with_name(f".{directory.name}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    index = {}
    for number, tensors in enumerate(_tensors(shape_of(rehearsal=rehearsal))):
        name = f"model-{number:05}.safetensors"
        save_file(tensors, made / name, {"format": "pt"})
        index |= dict.fromkeys(tensors, name)
    (made / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    made.rename(directory)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.serving.weights")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="of the tiny model")
    options = parser.parse_args()
    write_weights(options.directory, rehearsal=options.rehearse)


if __name__ == "__main__":
    main()
