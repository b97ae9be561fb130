"""The short form of a config as calls: quantize.py makes the checkpoint, whatever the architecture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from builder.engines.tensorrt_llm.call import Call, Given
from builder.engines.tensorrt_llm.commands import MODEL_DIR
from builder.engines.tensorrt_llm.scripts import QUANTIZE
from builder.engines.tensorrt_llm.tables import table

if TYPE_CHECKING:
    from collections.abc import Collection

    from shared.config import TensorRTLLMConfig
    from shared.config.document import Place
    from shared.config.old import ArgumentValue

_CHECKPOINT_DIR = "checkpoint"
_ENGINE_DIR = "engine"
# Their GEMMs are TensorRT's own; the plugin is for the others.
_WITHOUT_GEMM_PLUGIN = ("fp8", "nvfp4")


def calls_of_short_form(config: TensorRTLLMConfig, wrong: Collection[Place] = ()) -> list[Call]:
    """Two calls: the checkpoint, in the given precision, and the engine. Keys at the places `wrong` were left
    out of `config`.
    """

    def given(key: str, value: ArgumentValue) -> Given:
        return Given(value, (key,) if key in config.model_fields_set or (key,) in wrong else ())

    model = Given(MODEL_DIR, ("model",))
    checkpoint = Given(_CHECKPOINT_DIR, ())
    tp, pp = config.tensor_parallel_size, config.pipeline_parallel_size
    quantize = Call(
        "quantize" if config.quantization else "convert_to_ft",
        "quantize.py", QUANTIZE, table("quantize.py"), (), _CHECKPOINT_DIR,
        {
            "model_dir": model,
            "dtype": given("dtype", config.dtype),
            "qformat": given("quantization", config.quantization or "full_prec"),
            "tp_size": given("tensor_parallel_size", tp),
            "pp_size": given("pipeline_parallel_size", pp),
            "output_dir": checkpoint,
        },
    )  # fmt: skip
    arguments = {
        "checkpoint_dir": checkpoint,
        "output_dir": Given(_ENGINE_DIR, ()),
        "max_batch_size": given("max_batch_size", config.max_batch_size),
        "max_num_tokens": given("max_num_tokens", config.max_num_tokens),
    }
    for key, length in (("max_input_len", config.max_input_len), ("max_seq_len", config.max_seq_len)):
        if length is not None:
            arguments[key] = given(key, length)
    if config.quantization not in _WITHOUT_GEMM_PLUGIN:
        arguments["gemm_plugin"] = Given("auto", ())
    if tp * pp > 1:
        arguments["workers"] = Given(tp * pp, ())
    build = Call("build", "trtllm-build", None, table("trtllm-build"), (), _ENGINE_DIR, arguments)
    return [quantize, build]
