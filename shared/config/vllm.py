"""For the config of vLLM: GPUs by name, and its engine arguments in the JSON Schema."""

from __future__ import annotations

from typing import Any, NamedTuple

from shared.vllm_arguments import SPECULATIVE, table


class Gpu(NamedTuple):
    """`memory`: bytes that CUDA reports as the total; `sm`: compute capability, 90 for 9.0."""

    memory: int
    sm: int


def _gib(number: float) -> int:
    return int(number * (1 << 30))


# What nvidia-smi shows as the total, less what the driver keeps.
GPUS = {
    "A10": Gpu(_gib(22.0), 86),
    "A10G": Gpu(_gib(22.0), 86),
    "A40": Gpu(_gib(44.3), 86),
    "A100-40GB": Gpu(_gib(39.4), 80),
    "A100-80GB": Gpu(_gib(79.1), 80),
    "B200": Gpu(_gib(178.3), 100),
    "GH200": Gpu(_gib(94.5), 90),
    "H100": Gpu(_gib(79.1), 90),
    "H100-NVL": Gpu(_gib(93.1), 90),
    "H200": Gpu(_gib(139.8), 90),
    "L4": Gpu(_gib(22.0), 89),
    "L40S": Gpu(_gib(44.4), 89),
    "RTX-3090": Gpu(_gib(23.6), 86),
    "RTX-4090": Gpu(_gib(23.5), 89),
    "RTX-A6000": Gpu(_gib(47.4), 86),
}

_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "list": "array",
    "object": "object",
}
_BOUNDS = {
    "minimum": "minimum",
    "above": "exclusiveMinimum",
    "maximum": "maximum",
    "below": "exclusiveMaximum",
}


def quantization_schema() -> dict[str, Any]:
    """JSON Schema of `quantization`: the methods that vLLM knows."""
    return _schema(table()["own"]["quantization"])


def arguments_schema() -> dict[str, Any]:
    """JSON Schema of `engine_args`."""
    known = table()
    return _object(known["arguments"] | known["code"])


def speculative_schema() -> dict[str, Any]:
    """JSON Schema of `speculative_config`."""
    return _schema(table()["own"][SPECULATIVE])


def _object(specs: dict[str, Any]) -> dict[str, Any]:
    properties = {name: _schema(spec) for name, spec in specs.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _schema(spec: dict[str, Any]) -> dict[str, Any]:
    if "members" in spec:
        made = _object(spec["members"])
    elif "choices" in spec:
        made = {"enum": spec["choices"]}
    else:
        made = {"type": _TYPES[spec["type"]]}
        made |= {name: spec[key] for key, name in _BOUNDS.items() if key in spec}
    return {"anyOf": [made, {"type": "null"}]} if spec.get("null") else made
