"""Builds of a large model, in a process whose memory and transfers are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from shared.layout import PROJECT_ROOT

from .environments import install

if TYPE_CHECKING:
    from pathlib import Path


def make_model(directory: Path, size: int) -> None:
    """A Llama checkpoint of about `size` bytes, all zeros, in a file with holes."""
    hidden, inter, vocab, head = 2048, 8192, 4096, 128
    kinds = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden, hidden),
        "self_attn.v_proj": (hidden, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inter, hidden),
        "mlp.up_proj": (inter, hidden),
        "mlp.down_proj": (hidden, inter),
    }
    layer = 2 * (4 * hidden * hidden + 3 * hidden * inter + 2 * hidden)
    layers = round(size / layer)
    shapes = {"model.embed_tokens": (vocab, hidden), "model.norm": (hidden,), "lm_head": (vocab, hidden)}
    for number in range(layers):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in kinds.items()}
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    directory.mkdir()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": inter,
        "vocab_size": vocab,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // head,
        "num_key_value_heads": hidden // head,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "torch_dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text("{}")


BUILD = """
import json, os, sys
from pathlib import Path
from builder.pipeline import build
from builder.package import Package
from shared.artifact import write

package, counts = Package.run, {}

def io():
    return {line.split(":")[0]: int(line.split()[1]) for line in Path("/proc/self/io").read_text().splitlines()}

def counted(*arguments):
    before = io()
    package(*arguments)
    after = io()
    counts.update(read=after["rchar"] - before["rchar"], written=after["wchar"] - before["wchar"])

Package.run = counted
manifest = build(sys.argv[1], Path(sys.argv[2]), work_dir=Path(sys.argv[3]))
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"peak": int(peak.split()[1]) * 1024, "size": manifest.total_size, **counts}))
"""


def build_of(directory: Path, size: int) -> dict[str, int]:
    """Build a model of `size` bytes: peak memory of the building process, bytes of the engine, and bytes read
    and written while it was packed.
    """
    make_model(directory / "model", size)
    install(directory / "home")
    config = json.dumps({"engine": "tensorrt_llm", "model": str(directory / "model")})
    command = [sys.executable, "-c", BUILD, f"data:,{config}", str(directory / "engine.tar"), str(directory)]
    environment = {**os.environ, "COG_TRITON_HOME": str(directory / "home"), "LOG_LEVEL": "error"}
    done = subprocess.run(
        command, cwd=PROJECT_ROOT, env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])
