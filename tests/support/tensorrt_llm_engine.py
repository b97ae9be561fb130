"""TensorRT-LLM engines for the stand-in of its executor."""

from __future__ import annotations

import json
import os
import venv
from pathlib import Path

from shared.layout import PROJECT_ROOT, Layout
from tests.support.words import word_tokenizer

STAND_IN = Path(__file__).resolve().parent / "executor_stand_in"
NVML = Path(__file__).resolve().parent / "nvml_stand_in"
VOCAB_SIZE = 500
MAX_SEQ_LEN = 4000
MEMORY_ERROR, ERROR, GPU_ERROR, HANG = 6, 7, 8, 9


def write_engine(
    directory: Path,
    *,
    server: dict | None = None,
    tp_size: int = 1,
    pp_size: int = 1,
    plugins: dict | None = None,
    eos_id: int | None = None,
    tensorrt_version: str | None = None,
    **script: object,
) -> Path:
    """An unpacked engine.tar; `server` are the arguments of server.tensorrt_llm, `script` the stand-in's.

    With `eos_id` it has a tokenizer of which nothing else is known, with `tensorrt_version` such a manifest.
    """
    engine = directory / "engine"
    engine.mkdir(parents=True)
    config: dict[str, object] = {"engine": "tensorrt_llm"}
    if server is not None:
        config["instantiate"] = {"server": {"tensorrt_llm": {"args": server}}}
    (directory / "config.json").write_text(json.dumps(config))
    built = {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "vocab_size": VOCAB_SIZE,
            "mapping": {"world_size": tp_size * pp_size, "tp_size": tp_size, "pp_size": pp_size},
        },
        "build_config": {
            "max_input_len": 1000,
            "max_seq_len": MAX_SEQ_LEN,
            "max_num_tokens": 2000,
            "plugin_config": plugins or {"context_fmha": True, "remove_input_padding": True},
        },
    }
    (engine / "config.json").write_text(json.dumps(built))
    for rank in range(tp_size * pp_size):
        (engine / f"rank{rank}.engine").write_bytes(b"engine")
    if tensorrt_version is not None:
        (directory / "manifest.json").write_text(json.dumps({"tensorrt_version": tensorrt_version}))
    if eos_id is not None:
        tokenizer = directory / "tokenizer"
        tokenizer.mkdir()
        (tokenizer / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
        added = [{"id": eos_id, "content": "</s>"}]
        (tokenizer / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    stand_in = {
        "error_id": ERROR,
        "gpu_error_id": GPU_ERROR,
        "hang_id": HANG,
        "memory_error_id": MEMORY_ERROR,
        **script,
    }
    (engine / "stand_in.json").write_text(json.dumps(stand_in))
    return directory


def runner_environment(directory: Path, **engine: object) -> dict[str, str]:
    """What makes a runner serve such an engine, which counts as the mock does, on a machine without GPUs."""
    engine_dir = write_engine(directory / "engine", **engine)
    (engine_dir / "tokenizer").mkdir()
    word_tokenizer().save(str(engine_dir / "tokenizer/tokenizer.json"))
    home = directory / "home"
    environment = home / "engines/tensorrt_llm"
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "stand_in.pth").write_text(f"{STAND_IN}\n")
    for part in ("triton", "bridge"):
        (home / part).symlink_to(Layout.current().home / part)
    return {
        "ENGINE_DIR": str(engine_dir),
        "COG_TRITON_HOME": str(home),
        "PYTHONPATH": os.pathsep.join((str(NVML), str(PROJECT_ROOT))),
    }


def stand_in_tokens(prompt: list[int], count: int) -> list[int]:
    return [(sum(prompt) + position) % VOCAB_SIZE for position in range(count)]
