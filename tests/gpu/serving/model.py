"""A model of the shape of Llama 3 8B, with a real tokenizer."""

from __future__ import annotations

import json
from hashlib import sha256
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.gpu.serving.tokenizer import TOKENIZER, VOCABULARY, copy_tokenizer, texts, words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MODEL_NAME = "8b-shape"
PROMPT_TOKENS, OUTPUT_TOKENS = 128, 256
_OWN = ("dtype", "max_model_len", "tensor_parallel_size")
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
    "max_position_embeddings": 8448,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


class Burst(NamedTuple):
    """So many streams at once, each with a prompt of so many tokens."""

    streams: int
    prompt_tokens: int = PROMPT_TOKENS


def prompt_ids(tokens: int = PROMPT_TOKENS) -> list[int]:
    """Of the prompt that every stream sends."""
    all_words = words()
    return [all_words[17 * number % len(all_words)] for number in range(tokens)]


def prompt_text(tokens: int = PROMPT_TOKENS) -> str:
    """The same, as text."""
    return "".join(texts()[token] for token in prompt_ids(tokens))


def summary(seconds: Iterable[float]) -> dict[str, float]:
    """Of the times of all streams, or of all gaps."""
    ordered = sorted(seconds)
    quantiles = {f"p{share}": ordered[share * (len(ordered) - 1) // 100] for share in (50, 99)}
    return quantiles | {"mean": fmean(ordered)}


def shape_of(*, rehearsal: bool = False) -> dict[str, Any]:
    """What config.json says of the model."""
    return _SHAPE | (_REHEARSAL_SHAPE if rehearsal else {})


def write_model(
    directory: Path,
    weights: Path | None = None,
    *,
    tokenizer: Path = TOKENIZER,
    template: str | None = None,
    rehearsal: bool = False,
) -> Path:
    """config.json, the tokenizer, and links to the weights if there are any, in Hugging Face's form."""
    directory.mkdir(parents=True)
    for file in weights.iterdir() if weights else ():
        (directory / file.name).symlink_to(file.resolve())
    (directory / "config.json").write_text(json.dumps(shape_of(rehearsal=rehearsal)))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "bos_token_id": 1}))
    copy_tokenizer(directory, tokenizer)
    if template is not None:
        place = directory / "tokenizer_config.json"
        place.write_text(json.dumps(json.loads(place.read_text()) | {"chat_template": template}))
    return directory


def write_engine(
    directory: Path,
    arguments: dict[str, Any],
    weights: Path | None = None,
    *,
    tokenizer: Path = TOKENIZER,
    template: str | None = None,
    rehearsal: bool = False,
) -> Path:
    """An engine with these arguments of vLLM's, as a builder would make it.

    It is an engine.tar, or with weights, which it would only copy, a folder as one is unpacked.
    """
    # Not to be had in the environment of vLLM, which reads this module too.
    from shared.artifact import EngineFacts, FileEntry, Manifest, PackedFile, write_archive

    model = write_model(
        directory / "model", weights, tokenizer=tokenizer, template=template, rehearsal=rehearsal
    )
    # For some of vLLM's arguments our config has a key of its own.
    own = {name: arguments[name] for name in _OWN if name in arguments}
    further = {name: value for name, value in arguments.items() if name not in own}
    config = json.dumps({"engine": "vllm", "model": MODEL_NAME, **own, "engine_args": further}).encode()
    facts = EngineFacts(
        engine="vllm",
        model=MODEL_NAME,
        cog_triton_version="0",
        ranks=arguments.get("tensor_parallel_size", 1),
    )
    of_tokenizer = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
    if weights is None:
        files = [PackedFile("config.json", config), PackedFile("engine/config.json", model / "config.json")]
        files += [PackedFile(f"tokenizer/{name}", model / name) for name in of_tokenizer]
        write_archive(directory / "engine.tar", facts, files)
        return directory / "engine.tar"
    model.rename(directory / "engine")
    (directory / "tokenizer").mkdir()
    for name in of_tokenizer:
        (directory / "engine" / name).rename(directory / "tokenizer" / name)
    (directory / "config.json").write_bytes(config)
    # What is compiled for one call serves the next: the weights are always the same, and their digests take long.
    text = (directory / "engine/config.json").read_bytes()
    entry = FileEntry(name="engine/config.json", size=len(text), sha256=sha256(text).hexdigest())
    digest = sha256(config).hexdigest()
    manifest = Manifest(**facts.model_dump(), config_digest=digest, files=(entry,))
    (directory / "manifest.json").write_bytes(manifest.to_bytes())
    return directory
