"""Engines that are built: the short form, and the recipe for 4-bit weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome, Skip

from .built import config_of

if TYPE_CHECKING:
    from .bench import TensorRTLLMBench

_GROUP = 128  # weights that share a scale
# What the runner reads from an engine's config.json.
_READ = {
    "pretrained_config": ("architecture", "vocab_size", "mapping"),
    "build_config": ("max_input_len", "max_seq_len", "max_num_tokens", "plugin_config"),
}


def _short_form(bench: TensorRTLLMBench) -> Outcome:
    config = config_of(bench.engine)
    missing = [
        f"{section}.{key}"
        for section, keys in _READ.items()
        for key in keys
        if key not in config.get(section, {})
    ]
    if "version" not in config:
        missing.append("version")
    expected = "config.json with all that the runner reads"
    return Outcome(expected, f"config.json without {', '.join(missing)}" if missing else expected)


def _awq(bench: TensorRTLLMBench) -> Outcome:
    sizes = config_of(bench.engine)["pretrained_config"]
    for name in ("hidden_size", "intermediate_size"):
        if sizes[name] % _GROUP:
            raise Skip(f"{name} is {sizes[name]}, not a multiple of {_GROUP}: use another model")
    engine = bench.built(
        "awq", {"engine": "tensorrt_llm", "model": str(bench.model), "quantization": "int4_awq"}
    )
    algorithm = config_of(engine)["pretrained_config"]["quantization"]["quant_algo"]
    text = bench.serve(engine.path).complete("Once upon a time,", 16).text
    return Outcome("W4A16_AWQ, and text", f"{algorithm}, and {'text' if text.strip() else 'no text'}")


CHECKS = (
    Check(
        "short form",
        "quantize.py without a format and trtllm-build make an engine whose config.json says what it takes",
        "tensorrt_llm/builder.py: EngineConfig; modelopt 0.37, torch/export/tensorrt_llm_utils.py",
        _short_form,
    ),
    Check(
        "AWQ",
        "quantize.py --qformat int4_awq makes what trtllm-build accepts, and the engine writes text",
        "examples/quantization/quantize.py; docs/source/legacy/architecture/checkpoint.md",
        _awq,
    ),
)
