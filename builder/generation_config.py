"""generation_config.json with every token that ends a text: models list them in three places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from builder.model_json import read_object
from builder.tokenizer.settings import TOKENIZER, eos_token
from shared.token_ids import token_id

if TYPE_CHECKING:
    from pathlib import Path

GENERATION_CONFIG = "generation_config.json"


def generation_config(model: Path) -> bytes | None:
    """The generation_config.json for an engine of the checkpoint in `model`; None if there is nothing to say.

    Its own end ids are extended by those of config.json and the `eos_token` of tokenizer_config.json.
    """
    own = _read(model / GENERATION_CONFIG)
    known = _ids(own.get("eos_token_id"))
    found = [*known, *_ids(_read(model / "config.json").get("eos_token_id")), *_id_of_eos_token(model)]
    every = list(dict.fromkeys(found))
    if every == known:
        return (model / GENERATION_CONFIG).read_bytes() if own else None
    return json.dumps(own | {"eos_token_id": every}, indent=2).encode() + b"\n"


def _id_of_eos_token(model: Path) -> list[int]:
    token = eos_token(model)
    tokenizer = _read(model / TOKENIZER)
    id_ = None if token is None else token_id(tokenizer, token)
    size = _read(model / "config.json").get("vocab_size")
    is_written = id_ is not None and not (isinstance(size, int) and id_ >= size)
    return [id_] if id_ is not None and is_written else []


def _ids(value: object) -> list[int]:
    """`eos_token_id` is a number, a list of them, or null."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, int)]


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one if there is no file. Raises CheckpointInvalid for anything else."""
    return read_object(path) if path.exists() else {}
