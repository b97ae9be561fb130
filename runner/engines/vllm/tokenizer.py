"""The tokenizer that the engine core gets, only for grammars: the model's tokens, and none of its code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import tokenizers

from runner.engines.tokenizer_files import eos_token, read_object

if TYPE_CHECKING:
    from pathlib import Path


class CoreTokenizer(NamedTuple):
    """A directory that vLLM can read as a tokenizer."""

    directory: Path
    end_id: int
    """The token that a grammar allows where the text may end."""


def core_tokenizer(files: Path, directory: Path) -> CoreTokenizer | None:
    """Make `directory` from the model's files; None if they say too little.

    vLLM would choose a class of transformers by the model's name, or require the model's own code; the
    general class reads every tokenizer.json.
    """
    try:
        library = tokenizers.Tokenizer.from_file(str(files / "tokenizer.json"))
    except Exception:  # the library raises nothing else
        return None
    end_id = _end_id(library, files)
    if end_id is None:
        return None
    directory.mkdir()
    (directory / "tokenizer.json").symlink_to((files / "tokenizer.json").resolve())
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": library.id_to_token(end_id)}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return CoreTokenizer(directory, end_id)


def _end_id(library: tokenizers.Tokenizer, files: Path) -> int | None:
    """The `eos_token` of the tokenizer, else the first one in generation_config.json."""
    token = eos_token(files)
    found = None if token is None else library.token_to_id(token)
    if found is None:
        ids = read_object(files / "generation_config.json").get("eos_token_id")
        found = next(iter(ids), None) if isinstance(ids, list) else ids
    return found if isinstance(found, int) and library.id_to_token(found) is not None else None
