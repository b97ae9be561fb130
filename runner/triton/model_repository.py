"""Triton's model repository: `tensorrt_llm` for tokens, `ensemble` for text.

For a vLLM engine, there is also a model for clients of Triton's vLLM backend. The engine bridge serves them
all, from one engine process.

The configuration is a protobuf message printed as text, as Triton reads it (model_config.proto).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from google.protobuf import text_format

from runner.protocol import text, tokens, vllm
from runner.triton.messages import messages

if TYPE_CHECKING:
    from pathlib import Path

    from tritonclient.grpc import model_config_pb2 as model_config

    from runner.protocol.tensors import TensorSpec

if not TYPE_CHECKING:
    model_config = messages("model_config_pb2")

MODEL_NAME = "tensorrt_llm"
TEXT_MODEL_NAME = "ensemble"
BACKEND = "engine_bridge"
_BACKEND_MODEL = "vllm"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParameters:
    """What the engine bridge needs to know; docs/architecture/3-bridge.md explains each."""

    engine_python: Path
    engine_kind: str
    engine_dir: Path
    engine_path: Path
    start_timeout_seconds: float | None = None
    max_restarts: int | None = None
    feed_path: Path | None = None
    feed_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Model:
    interface: str  # of the engine bridge
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batched: bool = True


_MODELS = {
    MODEL_NAME: _Model("tokens", tokens.INPUTS, tokens.OUTPUTS),
    TEXT_MODEL_NAME: _Model("text", text.INPUTS, text.OUTPUTS),
    _BACKEND_MODEL: _Model("vllm", vllm.INPUTS, vllm.OUTPUTS, batched=False),
}


def write_model_repository(
    directory: Path,
    parameters: BridgeParameters,
    *,
    decoupled: bool = True,
    backend_model: str | None = None,
) -> None:
    """Write, for each model, `directory`/NAME/config.pbtxt and its version folder.

    Unless they are `decoupled`, the models of TensorRT-LLM's contract give one answer to a request, and
    decoupled ones are added, with `_decoupled` after their names. `backend_model` is the name of one more,
    with the tensors of Triton's vLLM backend, which is always decoupled.
    """
    models = [
        (base, name, streams)
        for base in (MODEL_NAME, TEXT_MODEL_NAME)
        for name, streams in {base: decoupled, _decoupled_name(base, decoupled=decoupled): True}.items()
    ]
    if backend_model is not None:
        models.append((_BACKEND_MODEL, backend_model, True))
    for base, name, streams in models:
        (directory / name / "1").mkdir(parents=True, exist_ok=True)
        config = configuration(base, parameters, name=name, decoupled=streams)
        (directory / name / "config.pbtxt").write_text(text_format.MessageToString(config))


def _decoupled_name(name: str, *, decoupled: bool) -> str:
    """The name of the decoupled model in a repository written with `decoupled`."""
    return name if decoupled else f"{name}_decoupled"


def configuration(
    base: str, parameters: BridgeParameters, *, name: str | None = None, decoupled: bool = True
) -> model_config.ModelConfig:
    """The configuration of one of the models, `base`, under its own or another name."""
    model = _MODELS[base]
    config = model_config.ModelConfig(
        name=name or base,
        backend=BACKEND,
        # Triton does not batch: each prompt is a request of its own, and the engine batches.
        max_batch_size=1 if model.batched else 0,
        model_transaction_policy=model_config.ModelTransactionPolicy(decoupled=decoupled),
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
            for tensor in model.inputs
        ],
        output=[
            model_config.ModelOutput(
                name=tensor.name,
                data_type=_data_type(tensor),
                dims=tensor.dims,
            )
            for tensor in model.outputs
        ],
    )
    for key, value in {**asdict(parameters), "interface": model.interface}.items():
        if value is not None:
            config.parameters[key].string_value = str(value)
    return config


def _data_type(tensor: TensorSpec) -> int:
    # Requests say BYTES where configurations say STRING.
    name = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    number: int = model_config.DataType.Value(f"TYPE_{name}")
    return number
