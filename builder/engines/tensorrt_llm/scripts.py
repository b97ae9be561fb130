"""Which script of TensorRT-LLM 1.2.1 a step of a config means, by its current or a former name."""

from __future__ import annotations

from pathlib import PurePosixPath

QUANTIZE = "quantization/quantize.py"

# The folders of examples/models that have a convert_checkpoint.py.
_FOLDERS = {
    "core": (
        "bert", "commandr", "enc_dec", "gemma", "glm-4-9b", "gpt", "internlm2", "llama", "mamba", "mllama",
        "nemotron_nas", "phi", "qwen", "recurrentgemma", "vit", "whisper",
    ),
    "contrib": (
        "baichuan", "bloom", "cogvlm", "dbrx", "deepseek_v1", "deepseek_v2", "dit", "falcon", "gptj",
        "gptneox", "grok", "mmdit", "mpt", "opt", "stdit",
    ),
}  # fmt: skip
# Families that use another family's script.
_ALIASES = {
    "mistral": "llama",
    "mixtral": "llama",
    "starcoder": "gpt",
    "qwen2": "qwen",
    "chatglm": "glm-4-9b",
}

EXAMPLES: dict[str, str] = {
    name: f"models/{group}/{name}" for group, names in _FOLDERS.items() for name in names
}
"""The folder in examples/ of each example."""

NAMES = (*EXAMPLES, *_ALIASES)
"""What `example_name` may be."""

OLD_CONVERTERS = {"hf_gpt_convert.py": "gpt", "hf_llama_convert.py": "llama"}
"""Scripts from before 0.8 that wrote into a folder `N-gpu` of their output, and the example they belonged to.
"""


def example_of(name: str) -> str | None:
    """The example that `name` means: `llama` for `mistral` or `models/core/llama`."""
    last = PurePosixPath(name).name
    last = _ALIASES.get(last, last)
    return last if last in EXAMPLES else None


def converter(example: str) -> str:
    """The conversion script of an example, as a path in examples/."""
    return f"{EXAMPLES[example]}/convert_checkpoint.py"
