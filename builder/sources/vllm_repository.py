"""A model repository of Triton's vLLM backend: NAME/config.pbtxt, NAME/1/model.json and multi_lora.json."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from builder.model_json import check_size, read_object
from shared.config import VLLMConfig
from shared.errors import CheckpointInvalid, VllmRepositoryInvalid
from shared.lora import CONFIG, WEIGHTS
from shared.validation import wanted
from shared.vllm_arguments import table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_BACKEND = "vllm"
_WORDS = {"true": True, "false": False}
# vLLM's names of the same types.
_DTYPES = {"half": "float16", "float": "float32"}
MODEL_JSON, MULTI_LORA = "model.json", "multi_lora.json"
# It becomes the name of a folder.
_ADAPTER_NAME = re.compile(r"(?!\.)[^/\0]{1,200}")


class Repository(NamedTuple):
    """What is served of one, and where its paths start."""

    config: VLLMConfig
    folder: Path
    adapters: dict[str, Path]
    """The folders of its LoRA adapters, by their names."""


def is_vllm_repository(path: Path) -> bool:
    """Whether there is a model of Triton's vLLM backend in the folder `path`, or whether it is one itself."""
    return bool(_models(path))


def read_repository(path: Path) -> Repository:
    """The config that describes the model in it.

    Raises VllmRepositoryInvalid when there are several, or what its model.json says cannot be served.
    """
    model, *others = _models(path)
    if others:
        reason = f"it has {1 + len(others)} models, and an engine serves one"
        raise VllmRepositoryInvalid(path=path, reason=reason, fix=f"Choose one of them, such as {model}")
    file = _model_json(model)
    try:
        given = read_object(file)
    except CheckpointInvalid as error:
        raise VllmRepositoryInvalid(
            path=file, reason=str(error.details["reason"]), fix="Correct it"
        ) from None
    try:
        config = VLLMConfig.model_validate(_config(given, model.name))
    except ValidationError as error:
        first = error.errors()[0]
        if first["loc"] == ("triton_model",):
            reason = "its name may have at most 128 characters: letters, digits, _, . and -"
            raise VllmRepositoryInvalid(path=model, reason=reason, fix="Rename that folder") from None
        reason = f"{'.'.join(map(str, first['loc']))} {wanted(first)}"
        raise VllmRepositoryInvalid(path=file, reason=reason, fix="Correct it") from None
    return Repository(config, file.parent, _adapters(file.with_name(MULTI_LORA), config))


def _adapters(file: Path, config: VLLMConfig) -> dict[str, Path]:
    """The adapters in the file, if it exists; without `enable_lora` none, as in Triton's backend."""
    if not file.exists() or config.engine_args.get("enable_lora") is not True:
        return {}
    try:
        given = read_object(file)
    except CheckpointInvalid as error:
        raise VllmRepositoryInvalid(
            path=file, reason=str(error.details["reason"]), fix="Correct it"
        ) from None
    adapters = {}
    for name, place in given.items():
        if not isinstance(place, str) or not _ADAPTER_NAME.fullmatch(name):
            reason = f"{name!r} is not an adapter's name with the path of its folder as the value"
            raise VllmRepositoryInvalid(path=file, reason=reason, fix="Correct it")
        folder = file.parent / place
        if missing := next((part for part in (CONFIG, WEIGHTS) if not (folder / part).is_file()), None):
            reason = f"there is no {missing} in {folder}, the folder of {name}"
            raise VllmRepositoryInvalid(path=file, reason=reason, fix="Give the folder of a LoRA adapter")
        adapters[name] = folder
    return adapters


def _models(path: Path) -> list[Path]:
    found = [path, *sorted(path.iterdir())] if path.is_dir() else []
    return [one for one in found if _is_vllm(one / "config.pbtxt")]


def _is_vllm(config: Path) -> bool:
    """Raises VllmRepositoryInvalid for a file that names the backend, and that Triton cannot read either."""
    try:
        if not config.is_file():
            return False
        check_size(config)
        text = config.read_text(errors="replace")
    except (PermissionError, CheckpointInvalid):
        return False  # what needs it will say so
    # They take their time, and most folders have no such file.
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    try:
        # Triton may know fields that its client does not.
        read = text_format.Parse(text, model_config_pb2.ModelConfig(), allow_unknown_field=True)
    except (text_format.ParseError, RecursionError) as error:
        if _BACKEND not in text:
            return False
        raise VllmRepositoryInvalid(
            path=config, reason=f"it is not protobuf's text format ({error})", fix="Correct it"
        ) from None
    return bool(read.backend == _BACKEND)


def _model_json(model: Path) -> Path:
    """The model.json of its newest version, as Triton chooses it."""
    versions = [one for one in model.iterdir() if one.name.isdecimal() and (one / MODEL_JSON).is_file()]
    if not versions:
        raise VllmRepositoryInvalid(
            path=model, reason=f"there is no 1/{MODEL_JSON} in it", fix="Write there what vLLM should load"
        )
    return max(versions, key=lambda one: int(one.name)) / MODEL_JSON


def _config(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The config in our form: our keys, and the rest as engine arguments."""
    known = table()
    own: dict[str, Any] = {
        key: _value(known["own"][key], value) for key, value in given.items() if key in known["own"]
    }
    further = {
        key: _value(known["arguments"].get(key) or known["code"].get(key) or {}, value)
        for key, value in given.items()
        if key not in known["own"] and not _is_own_model(key, value, given)
    }
    if own.get("dtype") in _DTYPES:
        own["dtype"] = _DTYPES[own["dtype"]]
    return {"engine": "vllm", **own, "engine_args": further, "triton_model": name}


def _is_own_model(key: str, value: object, given: Mapping[str, Any]) -> bool:
    """A tokenizer that is the model's own means nothing."""
    return key == "tokenizer" and value == given.get("model")


def _value(spec: Mapping[str, Any], value: object) -> object:
    """Triton's examples sometimes write booleans as text."""
    if spec.get("type") == "bool" and isinstance(value, str):
        return _WORDS.get(value.lower(), value)
    return value
