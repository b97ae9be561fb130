"""Triton's model repository: one model, `tensorrt_llm`, served by the engine bridge.

The configuration is a protobuf message printed as text, as Triton reads it (model_config.proto).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as model_config

from runner.triton import contract

if TYPE_CHECKING:
    from pathlib import Path

MODEL_NAME = "tensorrt_llm"
BACKEND = "engine_bridge"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParameters:
    """What the engine bridge needs to know; docs/architecture.md explains each."""

    engine_python: Path
    engine_kind: str
    engine_dir: Path
    engine_path: Path
    start_timeout_seconds: float | None = None
    max_restarts: int | None = None
    status_path: Path | None = None
    owner_pid: int | None = None


def write_model_repository(directory: Path, parameters: BridgeParameters) -> None:
    """Write `directory`/tensorrt_llm/config.pbtxt and its version folder."""
    (directory / MODEL_NAME / "1").mkdir(parents=True, exist_ok=True)
    text = text_format.MessageToString(tensorrt_llm_config(parameters))
    (directory / MODEL_NAME / "config.pbtxt").write_text(text)


def tensorrt_llm_config(parameters: BridgeParameters) -> model_config.ModelConfig:
    """The configuration of the model that takes and gives token ids."""
    config = model_config.ModelConfig(
        name=MODEL_NAME,
        backend=BACKEND,
        # Triton groups nothing: each prompt is a request of its own, and the engine batches.
        max_batch_size=1,
        model_transaction_policy=model_config.ModelTransactionPolicy(decoupled=True),
        instance_group=[
            model_config.ModelInstanceGroup(count=1, kind=model_config.ModelInstanceGroup.KIND_CPU)
        ],
        input=[
            model_config.ModelInput(
                name=tensor.name,
                data_type=_data_type(tensor),
                dims=tensor.dims,
                optional=tensor.optional,
            )
            for tensor in contract.INPUTS
        ],
        output=[
            model_config.ModelOutput(
                name=tensor.name,
                data_type=_data_type(tensor),
                dims=tensor.dims,
            )
            for tensor in contract.OUTPUTS
        ],
    )
    for name, value in asdict(parameters).items():
        if value is not None:
            config.parameters[name].string_value = str(value)
    return config


def _data_type(tensor: contract.TensorSpec) -> int:
    # Requests say BYTES where configurations say STRING.
    name = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    number: int = model_config.DataType.Value(f"TYPE_{name}")
    return number
