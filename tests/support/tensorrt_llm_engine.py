"""TensorRT-LLM engines for the stand-in of its executor."""

from __future__ import annotations

import json
from pathlib import Path

STAND_IN = Path(__file__).resolve().parent / "executor_stand_in"
VOCAB_SIZE = 500
MAX_SEQ_LEN = 4000
ERROR, GPU_ERROR, HANG = 7, 8, 9


def write_engine(
    directory: Path,
    *,
    server: dict | None = None,
    tp_size: int = 1,
    plugins: dict | None = None,
    **script: object,
) -> Path:
    """An unpacked engine.tar; `server` are the arguments of server.tensorrt_llm, `script` the stand-in's."""
    engine = directory / "engine"
    engine.mkdir(parents=True)
    config = {"engine": "tensorrt_llm"}
    if server is not None:
        config["instantiate"] = {"server": {"tensorrt_llm": {"args": server}}}
    (directory / "config.json").write_text(json.dumps(config))
    built = {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "vocab_size": VOCAB_SIZE,
            "mapping": {"world_size": tp_size, "tp_size": tp_size, "pp_size": 1},
        },
        "build_config": {
            "max_input_len": 1000,
            "max_seq_len": MAX_SEQ_LEN,
            "max_num_tokens": 2000,
            "plugin_config": plugins or {"context_fmha": True, "remove_input_padding": True},
        },
    }
    (engine / "config.json").write_text(json.dumps(built))
    for rank in range(tp_size):
        (engine / f"rank{rank}.engine").write_bytes(b"engine")
    stand_in = {"error_id": ERROR, "gpu_error_id": GPU_ERROR, "hang_id": HANG, **script}
    (engine / "stand_in.json").write_text(json.dumps(stand_in))
    return directory


def stand_in_tokens(prompt: list[int], count: int) -> list[int]:
    return [(sum(prompt) + position) % VOCAB_SIZE for position in range(count)]
