"""LoRA adapters of the demo's model, with random weights."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING

from tests.vllm.model import MODEL

if TYPE_CHECKING:
    from pathlib import Path

RANK = 8
ADAPTERS = {"first": 1, "team/second": 2, "third": 3}
"""Name and seed."""
COMPARED = ("first", "team/second")


def write_adapter(directory: Path, seed: int, rank: int = RANK) -> Path:
    """One that changes what the model writes; `rank` of its weights, whatever its config says."""
    chance = random.Random(seed)
    model = json.loads((MODEL / "config.json").read_bytes())
    hidden = model["hidden_size"]
    tensors = {}
    for layer in range(model["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        tensors[f"{name}.lora_A.weight"] = ((rank, hidden), 0.15)
        tensors[f"{name}.lora_B.weight"] = ((hidden, rank), 0.15)
    header, data = {}, b""
    for name, ((rows, columns), most) in tensors.items():
        numbers = [chance.uniform(-most, most) for _ in range(rows * columns)]
        start = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [start, len(data)]}
    told = json.dumps(header).encode()
    directory.mkdir(parents=True)
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(told)) + told + data)
    config = {
        "peft_type": "LORA",
        "r": RANK,
        "lora_alpha": RANK,
        "target_modules": ["o_proj"],
        "bias": "none",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config))
    return directory
