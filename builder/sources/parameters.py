"""What a checkpoint says of itself: its config.json, and from the headers of its safetensors files how many
parameters it has, and their bytes.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import (
    HfApi,
    get_local_safetensors_metadata,
    hf_hub_download,
    parse_local_safetensors_file_metadata,
)
from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

from builder.model_json import MAX_BYTES, read_object
from builder.sources.hub_limits import file_of_at_most, limit_the_hub
from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

limit_the_hub()

_BITS = {
    "F64": 64, "F32": 32, "I64": 64, "I32": 32, "F16": 16, "BF16": 16, "I16": 16, "F8_E4M3": 8, "F8_E5M2": 8,
    "I8": 8, "U8": 8, "BOOL": 8,
}  # fmt: skip
_THREADS = 8  # files whose headers are asked for at the same time
_PLAIN = ("F64", "F32", "F16", "BF16")


def parameters_of(model: Path | str, revision: str | None, token: str | None) -> dict[str, int]:
    """How many parameters of each type (`BF16`) the checkpoint has: in a folder, or by its name on the hub.

    Only headers are read. Raises whatever the hub library raises.
    """
    if isinstance(model, Path):
        found = get_local_safetensors_metadata(model)
    else:
        with file_of_at_most(MAX_BYTES):
            found = HfApi(token=token).get_safetensors_metadata(model, revision=revision)
    return {str(kind): number for kind, number in found.parameter_count.items()}


def parameters_in(
    model: Path | str, files: Iterable[str], revision: str | None = None, token: str | None = None
) -> dict[str, int]:
    """As `parameters_of`, in these safetensors files of the checkpoint alone."""
    if isinstance(model, Path):
        headers = [parse_local_safetensors_file_metadata(model / name) for name in files]
    else:
        read = partial(HfApi(token=token).parse_safetensors_file_metadata, model, revision=revision)
        with ThreadPoolExecutor(_THREADS) as executor:
            headers = list(executor.map(read, files))
    total: Counter[str] = Counter()
    for header in headers:
        total.update({str(kind): number for kind, number in header.parameter_count.items()})
    return total


def config_of(model: Path | str, revision: str | None, token: str | None) -> dict[str, Any]:
    """The checkpoint's config.json, likewise. Raises CheckpointInvalid, and whatever the hub library does."""
    if not isinstance(model, Path):
        with file_of_at_most(MAX_BYTES):
            model = Path(hf_hub_download(model, "config.json", revision=revision, token=token)).parent
    return read_object(model / "config.json")


def bytes_of(parameters: Mapping[str, int]) -> int:
    """The bytes of that many parameters of each type, as published."""
    return sum(number * _BITS.get(kind, 16) for kind, number in parameters.items()) // 8


def bytes_held(parameters: Mapping[str, int], dtype: str) -> int:
    """Their bytes where vLLM has loaded them with this `dtype`, for which `auto` never means float32."""
    plain = 32 if dtype == "float32" else 16
    bits = {kind: plain if kind in _PLAIN else _BITS.get(kind, 16) for kind in parameters}
    return sum(number * bits[kind] for kind, number in parameters.items()) // 8


def why_unknown(error: Exception) -> str:
    """Why they cannot be read: without the library's own texts, which contain addresses and paths."""
    match error:
        case CogTritonError():
            return str(error.details.get("reason", error))
        case NotASafetensorsRepoError():
            return (
                "the estimate is made from model.safetensors or model.safetensors.index.json, and the model"
                " has neither"
            )
        case SafetensorsParsingError():
            return "a safetensors file of the model has no header that can be read"
        case FileNotFoundError(filename=str(name)):
            return f"the model has no {name.rpartition('/')[2]}"
        case _:
            return "the headers of the model's safetensors files could not be read"
