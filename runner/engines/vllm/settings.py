"""What a directory says about a vLLM engine: the model in Hugging Face's layout, and the engine arguments.

`config.json` is our config, `engine/` holds the model, `draft/` the one that drafts for it. Standard library
only.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from shared.errors import VllmArgumentInvalid, VllmModelIncomplete
from shared.vllm_arguments import (
    INVALID,
    LEFT_OUT,
    REMOVED,
    SPECULATIVE,
    UNKNOWN,
    code_is_allowed,
    table,
    wrong_arguments,
    wrong_value,
)

if TYPE_CHECKING:
    from pathlib import Path

    from shared.vllm_arguments import Wrong

# Keys of our config that are arguments of vLLM, by vLLM's name.
_OURS = ("dtype", "quantization", "max_model_len", "tensor_parallel_size", "pipeline_parallel_size")


def engine_arguments(engine_dir: Path) -> dict[str, Any]:
    """The keyword arguments of vLLM's `EngineArgs` for the engine in a directory.

    Arguments of earlier versions of vLLM are left out, with a warning. Raises VllmArgumentInvalid for
    arguments that may not be set here, or not to that value; VllmModelIncomplete for a directory without a
    model or a readable config.json.
    """
    model = engine_dir / "engine"
    if not (model / "config.json").is_file():
        raise VllmModelIncomplete(reason="there is no config.json in engine/")
    config = _read_object(engine_dir / "config.json")
    arguments = {name: config[name] for name in _OURS if config.get(name) is not None}
    arguments |= _further(config.get("engine_args") or {})
    if (speculative := config.get(SPECULATIVE)) is not None:
        arguments[SPECULATIVE] = _speculative(speculative, engine_dir)
    structures = arguments.get("structured_outputs_config") or {}
    return {
        # Else vLLM would load what encodes images, and start only with what prepares them.
        "language_model_only": True,
        # On an H100 vLLM would take FlashInfer's kernel for linear attention (Qwen3.5, Qwen3-Next), which
        # has to be compiled there, without looking whether it can be.
        "gdn_prefill_backend": "triton",
        **arguments,
        # Else what gpt-oss writes before its answer would not be held to the structure.
        "structured_outputs_config": {"enable_in_reasoning": True, **structures},
        "model": str(model),
        # Token ids go in and out; text is the runner's concern.
        "skip_tokenizer_init": True,
    }


def known_to(engine_args: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those that the vLLM that is installed has: one newer than the table may have dropped some.

    `engine_args` is its dataclass `EngineArgs`. A warning names what is left out.
    """
    there = {field.name for field in dataclasses.fields(engine_args)}
    for name in sorted(arguments.keys() - there):
        sys.stderr.write(f"this vLLM has no {name}: it is left out\n")
    return {name: value for name, value in arguments.items() if name in there}


def _further(given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise VllmArgumentInvalid(reason="engine_args is not an object")
    dropped = set()
    for wrong in wrong_arguments(given, code=code_is_allowed(os.environ)):
        if wrong.kind not in (LEFT_OUT, REMOVED):
            raise _invalid(wrong)
        (name,) = wrong.place
        dropped.add(name)
        if wrong.kind == LEFT_OUT:
            sys.stderr.write(f"{name} changes nothing here, and is left out: {wrong.told}\n")
            continue
        instead = f"; write {wrong.told} in its place" if wrong.told else ""
        sys.stderr.write(f"vLLM {table()['version']} no longer has {name}: it is left out{instead}\n")
    return {name: value for name, value in given.items() if name not in dropped}


def _speculative(given: object, engine_dir: Path) -> dict[str, Any]:
    for wrong in wrong_value((SPECULATIVE,), table()["own"][SPECULATIVE], given):
        raise _invalid(wrong)
    assert isinstance(given, dict)
    made = {name: value for name, value in given.items() if name != "revision" and value is not None}
    if "model" in made:
        made["model"] = str(engine_dir / "draft")
        if not (engine_dir / "draft/config.json").is_file():
            raise VllmModelIncomplete(reason="there is no config.json of the draft model in draft/")
    return made


def _invalid(wrong: Wrong) -> VllmArgumentInvalid:
    name = ".".join(wrong.place)
    if wrong.kind == UNKNOWN:
        hint = f" (did you mean {wrong.told}?)" if wrong.told else ""
        return VllmArgumentInvalid(reason=f"there is no {name}{hint}")
    if wrong.kind == INVALID:
        return VllmArgumentInvalid(reason=f"{name} must be {wrong.told}")
    return VllmArgumentInvalid(reason=f"{name} cannot be set: {wrong.told}")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise VllmModelIncomplete(reason="the engine's config.json cannot be read")
    return content
