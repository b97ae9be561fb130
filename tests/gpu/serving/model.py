"""A model of the shape of Llama 3 8B without weights, with a tokenizer of made-up words."""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MODEL_NAME = "8b-shape"
VOCABULARY = 128_256
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 256
ENGINE_ARGUMENTS = {
    "load_format": "dummy",
    "dtype": "bfloat16",
    "max_num_seqs": 1024,
    "max_num_batched_tokens": 8192,
    "max_model_len": 4096,
    # Every stream sends the same prompt.
    "enable_prefix_caching": False,
}
# Without a GPU: the same steps, to try them before a machine with one is asked for.
REHEARSAL_ARGUMENTS = {
    "load_format": "dummy",
    "max_model_len": 512,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 << 20,
    "enable_prefix_caching": False,
}
_REHEARSAL_SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
_SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
}


def prompt_ids() -> list[int]:
    """Of the prompt that every stream sends."""
    return [1000 + 17 * number for number in range(PROMPT_TOKENS)]


def prompt_text() -> str:
    """The same, as text."""
    return "".join(f" t{token}" for token in prompt_ids())


def summary(seconds: Iterable[float]) -> dict[str, float]:
    """Of the times of all streams, or of all gaps."""
    ordered = sorted(seconds)
    quantiles = {f"p{share}": ordered[share * (len(ordered) - 1) // 100] for share in (50, 99)}
    return quantiles | {"mean": fmean(ordered)}


def write_model(directory: Path, *, rehearsal: bool = False) -> Path:
    """config.json and the tokenizer, in Hugging Face's form."""
    directory.mkdir(parents=True)
    shape = _SHAPE | (_REHEARSAL_SHAPE if rehearsal else {})
    (directory / "config.json").write_text(json.dumps(shape))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 0}))
    (directory / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192})
    )
    return directory


def write_engine(directory: Path, arguments: dict[str, Any], *, rehearsal: bool = False) -> Path:
    """An engine.tar with these arguments of vLLM's, as a builder would make it."""
    # Not to be had in the environment of vLLM, which reads this module too.
    from shared.artifact import EngineFacts, PackedFile, write_archive

    model = write_model(directory / "model", rehearsal=rehearsal)
    # For some of vLLM's arguments our config has a key of its own.
    own = {name: arguments[name] for name in ("dtype", "max_model_len") if name in arguments}
    further = {name: value for name, value in arguments.items() if name not in own}
    config = {"engine": "vllm", "model": MODEL_NAME, **own, "engine_args": further}
    files = [PackedFile("config.json", json.dumps(config).encode())]
    files.append(PackedFile("engine/config.json", model / "config.json"))
    names = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
    files += [PackedFile(f"tokenizer/{name}", model / name) for name in names]
    facts = EngineFacts(engine="vllm", model=MODEL_NAME, cog_triton_version="0")
    write_archive(directory / "engine.tar", facts, files)
    return directory / "engine.tar"


def _tokenizer() -> dict[str, object]:
    words = {f"Ġt{token}": token for token in range(VOCABULARY)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "Ġt0"},
    }
