"""The files of tokenizers that have no tokenizer.json."""

import json
import re
import shutil
import subprocess
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from shared.layout import PROJECT_ROOT, Layout

DEMO = PROJECT_ROOT / "demo/model"
# Trained on the documentation by the library itself, in the environment of the converter.
_TRAIN = """
import json, sys
import sentencepiece
sentencepiece.SentencePieceTrainer.train(**json.loads(sys.argv[1]), vocab_size=1000, minloglevel=2)
"""
_ENCODE = """
import json, sys
import sentencepiece
model = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
print(json.dumps([model.encode(text) for text in json.loads(sys.argv[2])]))
"""
# The library with which Mistral's own tokenizer divides texts; its ids do without the special tokens.
_TEKKEN_ENCODE = """
import base64, json, sys
import tiktoken
content = json.load(open(sys.argv[1]))
config = content["config"]
first = config["default_num_special_tokens"]
used = content["vocab"][:config["default_vocab_size"] - first]
ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in used}
encoding = tiktoken.Encoding("own", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
print(json.dumps([[first + rank for rank in encoding.encode(text)] for text in json.loads(sys.argv[2])]))
"""
_TEKKEN_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As the models of the Llama family have it.
LLAMA = {
    "model_type": "bpe",
    "byte_fallback": True,
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
}


def vocabulary_and_merges(folder: Path, model: Path = DEMO) -> None:
    """Replace tokenizer.json in `folder` by the two files of GPT-2's form that say the same."""
    tokenizer = json.loads((model / "tokenizer.json").read_text())["model"]
    (folder / "tokenizer.json").unlink(missing_ok=True)
    (folder / "vocab.json").write_text(json.dumps(tokenizer["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["merges"]]
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))


def demo_in_gpt2_form(folder: Path) -> Path:
    """The demo's model, whose tokenizer.json has become vocab.json and merges.txt."""
    shutil.copytree(DEMO, folder)
    vocabulary_and_merges(folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "GPT2Tokenizer", "unk_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def distilgpt2(folder: Path) -> Path:
    """As distilbert/distilgpt2, with its head size and its files; one head in each of two layers."""
    folder.mkdir()
    vocabulary_and_merges(folder)
    shutil.copy(DEMO / "tokenizer.json", folder)
    vocabulary = len(json.loads((folder / "vocab.json").read_text()))
    width = 64
    sizes = {"n_embd": width, "n_layer": 2, "n_head": 1, "n_positions": 1024, "vocab_size": vocabulary}
    known = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "bos_token_id": 1, "eos_token_id": 1}
    special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "</s>")
    for name, content in (
        ("config.json", known | sizes),
        ("tokenizer_config.json", {"model_max_length": 1024}),
        ("special_tokens_map.json", special),
    ):
        (folder / name).write_text(json.dumps(content))
    shapes: dict[str, tuple[int, ...]] = {
        "wte.weight": (vocabulary, width),
        "wpe.weight": (1024, width),
        "ln_f.weight": (width,),
        "ln_f.bias": (width,),
    }
    for layer in range(2):
        for name, shape in (
            ("ln_1", (width,)),
            ("ln_2", (width,)),
            ("attn.c_attn", (width, 3 * width)),
            ("attn.c_proj", (width, width)),
            ("mlp.c_fc", (width, 4 * width)),
            ("mlp.c_proj", (4 * width, width)),
        ):
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[-1:]
    save_file(
        {name: np.zeros(shape, "float32") for name, shape in shapes.items()}, folder / "model.safetensors"
    )
    return folder


def sentencepiece_model(folder: Path, **options: object) -> Path:
    """A model of Llama's kind whose tokenizer is a tokenizer.model alone; of its weights only the name."""
    folder.mkdir()
    texts = sorted(str(path) for path in (PROJECT_ROOT / "docs").glob("*.md"))
    trainer = {"input": texts, "model_prefix": str(folder / "tokenizer"), **(options or LLAMA)}
    _run(_TRAIN, json.dumps(trainer))
    (folder / "tokenizer.vocab").unlink()
    hyperparameters = {"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2, "vocab_size": 1000}
    (folder / "config.json").write_text(json.dumps(hyperparameters))
    (folder / "model.safetensors").touch()
    return folder


def sentencepiece_ids(model: Path, texts: list[str]) -> list[list[int]]:
    """What the sentencepiece library itself makes of texts."""
    ids: list[list[int]] = json.loads(_run(_ENCODE, str(model / "tokenizer.model"), json.dumps(texts)))
    return ids


def tekken(words: int = 200, unused: int = 7, special: list[str] | None = None) -> dict[str, Any]:
    """The content of a tekken.json: tokens for `words` of the documentation and their beginnings, of which
    the last are not used, after 30 special tokens. The first of those are `special`; None: not listed, as in
    older files.
    """
    text = (PROJECT_ROOT / "docs/quickstart.md").read_text()
    found = [word.encode() for word in dict.fromkeys(re.findall(r" ?[A-Za-z]+", text))][:words]
    beginnings = (word[:end] for word in found for end in range(2, len(word) + 1))
    tokens = list(dict.fromkeys([*(bytes([value]) for value in range(256)), *beginnings]))
    reserved = 30
    content: dict[str, Any] = {
        "config": {
            "pattern": _TEKKEN_PATTERN,
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": len(tokens) - unused + reserved,
            "default_num_special_tokens": reserved,
            "version": "v3" if special is None else "v11",
        },
        "vocab": [
            {"rank": rank, "token_bytes": b64encode(token).decode(), "token_str": None}
            for rank, token in enumerate(tokens)
        ],
    }
    if special is not None:
        content["special_tokens"] = [
            {"rank": rank, "token_str": token, "is_control": True} for rank, token in enumerate(special)
        ]
    return content


def tekken_model(folder: Path, content: dict[str, Any]) -> Path:
    """A model of Mistral's kind whose tokenizer is a tekken.json alone; of its weights only the name."""
    folder.mkdir()
    (folder / "tekken.json").write_text(json.dumps(content))
    (folder / "config.json").write_text(json.dumps({"model_type": "mistral", "vocab_size": 1000}))
    (folder / "model.safetensors").touch()
    return folder


def tekken_ids(model: Path, texts: list[str]) -> list[list[int]]:
    """What Mistral's own tokenizer makes of texts, without the beginning."""
    ids: list[list[int]] = json.loads(_run(_TEKKEN_ENCODE, str(model / "tekken.json"), json.dumps(texts)))
    return ids


def _run(program: str, *arguments: str) -> str:
    python = Layout(PROJECT_ROOT / ".build").tokenizer_converter
    done = subprocess.run([python, "-c", program, *arguments], check=True, capture_output=True, text=True)
    return done.stdout
