"""What a directory says of a vLLM engine: the model in Hugging Face's form, and the engine arguments.

`config.json` is the config of ours in engine.tar, `engine/` holds the model. Standard library only.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from shared.errors import VllmArgumentInvalid, VllmModelIncomplete

if TYPE_CHECKING:
    from pathlib import Path

# Keys of our config, by the name of vLLM's argument.
_OURS = {
    "dtype": "dtype",
    "quantization": "quantization",
    "max_model_len": "max_seq_len",
    "tensor_parallel_size": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
}
# They name code to be run, or what this adapter decides itself.
_REFUSED = frozenset(
    {
        "model",
        "tokenizer",
        "trust_remote_code",
        "hf_token",
        "worker_cls",
        "worker_extension_cls",
        "scheduler_cls",
        "logits_processors",
        "io_processor_plugin",
        "reasoning_parser_plugin",
        "tool_parser_plugin",
        "distributed_executor_backend",
        "data_parallel_size",
        "skip_tokenizer_init",
        "enable_log_requests",
        "runner",
        "convert",
        "headless",
    }
)


def engine_arguments(engine_dir: Path) -> dict[str, Any]:
    """The keyword arguments of vLLM's `EngineArgs` for the engine in a directory.

    Raises E2202 for arguments that may not be set here, E2204 for a directory without a model.
    """
    model = engine_dir / "engine"
    if not (model / "config.json").is_file():
        raise VllmModelIncomplete(reason="there is no config.json in engine/")
    config = _read_object(engine_dir / "config.json")
    further = config.get("engine_args") or {}
    if not isinstance(further, dict):
        raise VllmArgumentInvalid(reason="engine_args is not an object")
    if refused := sorted(_REFUSED & further.keys()):
        raise VllmArgumentInvalid(reason=f"{refused[0]} cannot be set")
    arguments = {name: config[key] for name, key in _OURS.items() if config.get(key) is not None}
    return {
        **arguments,
        **further,
        "model": str(model),
        # Token ids come in and go out; the text is the runner's.
        "skip_tokenizer_init": True,
    }


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        raise VllmArgumentInvalid(reason="config.json of the engine cannot be read")
    return content
