"""How a model or arguments that cannot work fail, written as JSON: `failures.py RESULT`, in vLLM's environment.

One process for all of them: it takes vLLM seconds to be imported.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from runner.engines.vllm.engine import VLLMEngine
from shared.errors import CogTritonError
from tests.vllm.model import ARGUMENTS, MAX_SEQ_LEN, MODEL


def write(directory: Path, model: dict, drop: str | None, config: dict) -> Path:
    shutil.copytree(MODEL, directory / "engine")
    if drop:
        (directory / "engine" / drop).unlink()
    else:
        own = json.loads((MODEL / "config.json").read_text())
        (directory / "engine/config.json").write_text(json.dumps(own | model))
    own = {"engine": "vllm", "max_model_len": MAX_SEQ_LEN} | config
    own["engine_args"] = ARGUMENTS | own.get("engine_args", {})
    (directory / "config.json").write_text(json.dumps(own))
    return directory


CASES: dict[str, tuple[dict, str | None, dict]] = {
    "architecture": ({"architectures": ["FooForCausalLM"]}, None, {}),
    "model type": ({"model_type": "foo"}, None, {}),
    "no config": ({}, "config.json", {}),
    "no weights": ({}, "model.safetensors", {}),
    "unknown quantization": ({}, None, {"quantization": "foo"}),
    "context": ({}, None, {"max_model_len": 1 << 20}),
    "parallelism": ({}, None, {"tensor_parallel_size": 3}),
    "argument": ({}, None, {"engine_args": {"gpu_memory_utilisation": 0.5}}),
    "batch": ({}, None, {"engine_args": {"max_num_batched_tokens": 1, "max_num_seqs": 64}}),
    "layers": ({"num_hidden_layers": 1}, None, {}),
    "cache": ({}, None, {"engine_args": {"kv_cache_memory_bytes": 1 << 10}}),
}


def main() -> None:
    result = Path(sys.argv[1])
    told = {}
    for name, (model, drop, config) in CASES.items():
        try:
            VLLMEngine(write(result.parent / name.replace(" ", "-"), model, drop, config))
        except CogTritonError as error:
            told[name] = str(error)
        else:
            told[name] = "it started"
    result.write_text(json.dumps(told))


if __name__ == "__main__":
    main()
