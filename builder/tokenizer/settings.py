"""What the files beside tokenizer.json say about a tokenizer, as transformers reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import AddedToken

from builder.model_json import read_object
from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from pathlib import Path

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
ADDED_TOKENS, SPECIAL_TOKENS_MAP = "added_tokens.json", "special_tokens_map.json"
DECODER = "added_tokens_decoder"
_KINDS = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_LISTS = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


class TokenizerClass(NamedTuple):
    """What a class of transformers takes for granted."""

    special: dict[str, str]
    add_bos: bool | None = None
    """Whether a prompt begins with BOS unless the model says otherwise; None: tokenizer.json decides."""


_END_OF_TEXT = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
_SENTENCES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_COHERE = {"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>", "unk_token": "<UNK>"}
_GEMMA = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
_QWEN = dict.fromkeys(("eos_token", "unk_token", "pad_token"), "<|endoftext|>")

CLASSES = {
    "Bloom": TokenizerClass({**_SENTENCES, "pad_token": "<pad>"}),
    "CodeGen": TokenizerClass(_END_OF_TEXT),
    "Cohere": TokenizerClass(_COHERE, add_bos=True),
    "GPT2": TokenizerClass(_END_OF_TEXT),
    "GPTNeoX": TokenizerClass(_END_OF_TEXT, add_bos=False),
    "Gemma": TokenizerClass(_GEMMA, add_bos=True),
    "Llama": TokenizerClass(_SENTENCES, add_bos=True),
    "Qwen2": TokenizerClass(_QWEN),
}
_GENERAL = TokenizerClass({})
# For models that do not name a class: `TOKENIZER_MAPPING_NAMES` of transformers 4.57, text models.
_MODEL_TYPES = {
    "Bloom": "bloom",
    "CodeGen": "codegen phi",
    "Cohere": "cohere cohere2",
    "GPT2": "dbrx exaone4 flex_olmo gpt2 gpt_bigcode gpt_neo gptj minimax olmo3 opt starcoder2",
    "GPTNeoX": "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm",
    "Gemma": "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma",
    "Llama": """
        arcee deepseek_v2 deepseek_v3 diffllama ernie4_5 ernie4_5_moe jamba jetmoe llama llama4 llama4_text
        ministral mistral mistral3 mixtral persimmon phi3 phimoe zamba zamba2
        """,
    "Qwen2": "qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next qwen3_vl qwen3_vl_moe",
}


class TokenizerSettings(NamedTuple):
    """What a model says about its tokenizer besides tokenizer.json."""

    kind: str
    """The name of its class in transformers, without `Tokenizer` and what follows; may be empty."""
    named: dict[str, str]
    """The special tokens that have a purpose, by its name, such as `eos_token`."""
    special: list[AddedToken]
    """All special tokens, in the order in which transformers adds them."""
    described: set[str]
    """Those of `special` whose flags count, even if tokenizer.json has others."""
    added: dict[int, AddedToken]
    """The tokens beside the vocabulary, by the ids that a file gives them."""
    source: str
    """The name of the file, or of the key, that has the ids in `added`."""
    add_bos: bool | None
    add_eos: bool | None
    add_prefix_space: bool | None
    """None: tokenizer.json decides."""


def read_settings(folder: Path) -> TokenizerSettings:
    """Raises CheckpointInvalid for files, or values in them, that are not of the form that they must have."""
    config = _read(folder / CONFIG)
    kind = _kind(config, _read(folder / "config.json"))
    known = CLASSES.get(kind, _GENERAL)
    config = {**known.special, **config}
    if config.get(DECODER) is not None:
        source, added = f"{DECODER} in {CONFIG}", _decoder(config[DECODER])
    else:
        config = _with_older(config, _read(folder / SPECIAL_TOKENS_MAP))
        names = {token.content for token in _special(config)[1]}
        source, added = ADDED_TOKENS, _older_added(_read(folder / ADDED_TOKENS), names)
    named, special = _special(config)
    return TokenizerSettings(
        kind,
        {name: token.content for name, token in named.items()},
        special,
        _described(config, named, {token.content for token in added.values()}),
        added,
        source,
        _flag(config, "add_bos_token", known.add_bos) if known.add_bos is not None else None,
        _flag(config, "add_eos_token", False) if known.add_bos is not None else None,
        _flag(config, "add_prefix_space", None if kind == "Llama" else False),
    )


def eos_token(folder: Path) -> str | None:
    """The text of the token that ends a text; None if the files do not say. Raises CheckpointInvalid."""
    return read_settings(folder).named.get("eos_token")


def _read(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}


def _kind(config: dict[str, Any], model: dict[str, Any]) -> str:
    name = config.get("tokenizer_class") or model.get("tokenizer_class")
    if isinstance(name, str):
        return name.removesuffix("Fast").removesuffix("Tokenizer")
    model_type = model.get("model_type")
    return next((kind for kind, types in _MODEL_TYPES.items() if model_type in types.split()), "")


def _decoder(value: object) -> dict[int, AddedToken]:
    if not isinstance(value, dict) or not all(str(key).isdecimal() for key in value):
        raise _invalid(CONFIG, DECODER)
    return {int(key): _token(one, DECODER) for key, one in value.items()}


def _older_added(content: dict[str, Any], special: set[str]) -> dict[int, AddedToken]:
    if not all(type(id_) is int for id_ in content.values()):
        raise CheckpointInvalid(reason=f"{ADDED_TOKENS} does not give each token a number")
    return {
        id_: AddedToken(text, normalized=text not in special, special=text in special)
        for text, id_ in content.items()
    }


def _with_older(config: dict[str, Any], older: dict[str, Any]) -> dict[str, Any]:
    """`config` with what special_tokens_map.json says; transformers adds its lists, and takes the rest."""
    merged = {**config, **older}
    for name in _LISTS:
        if isinstance(config.get(name), list) and isinstance(older.get(name), list):
            merged[name] = [*config[name], *older[name]]
    return merged


def _special(config: dict[str, Any]) -> tuple[dict[str, AddedToken], list[AddedToken]]:
    """Those with a purpose, by its name; and all. Of two with the same text, the first one counts."""
    named = {name: _token(config[name], name) for name in _KINDS if config.get(name) is not None}
    every: dict[str, AddedToken] = {}
    for token in named.values():
        every.setdefault(token.content, token)
    further = [_token(one, _LISTS[0]) for one in _listed(config)]
    return named, [*every.values(), *(token for token in further if token.content not in every)]


def _described(config: dict[str, Any], named: dict[str, AddedToken], added: set[str]) -> set[str]:
    """The tokens that special ones describe by more than their text, unless what has ids does, too."""
    texts = {token.content for token in named.values()}
    found = {one["content"] for one in _listed(config) if isinstance(one, dict)} - texts
    if config.get(DECODER) is not None:
        found |= {token.content for name, token in named.items() if isinstance(config[name], dict)} - added
    return found


def _listed(config: dict[str, Any]) -> list[object]:
    """The special tokens without a purpose of their own."""
    listed: list[object] = []
    for name in _LISTS:
        values = config.get(name) or []
        if not isinstance(values, list | dict):
            raise _invalid(CONFIG, name)
        listed += values.values() if isinstance(values, dict) else values
    return listed


def _token(value: object, name: str) -> AddedToken:
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    if not isinstance(value, dict) or not isinstance(text := value.get("content"), str):
        raise _invalid(CONFIG, name)
    flags = {flag: value[flag] for flag in _FLAGS if flag in value}
    if not all(isinstance(one, bool) for one in flags.values()):
        raise _invalid(CONFIG, name)
    return AddedToken(text, **flags)


def _flag(config: dict[str, Any], name: str, default: bool | None) -> bool | None:
    value = config.get(name, default)
    if value is not None and not isinstance(value, bool):
        raise _invalid(CONFIG, name)
    return value


def _invalid(file: str, name: str) -> CheckpointInvalid:
    return CheckpointInvalid(reason=f"{file} has a {name} that is not of the form that transformers reads")
