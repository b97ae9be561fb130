"""The vocabulary of a CTranslate2 model: one unique string for every token id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from shared.errors import CheckpointInvalid

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path


def read_vocabulary(tokenizer_json: Path, size: int) -> list[str]:
    """The strings of the ids 0 to `size` - 1, from tokenizer.json.

    Embeddings are often padded beyond the tokenizer: such ids, and those that tokenizer.json omits or lists
    twice, get a name of their own. Raises CheckpointInvalid when the file cannot be read.
    """
    if not tokenizer_json.is_file():
        raise CheckpointInvalid(reason=f"it has no {tokenizer_json.name}")
    try:
        ids = Tokenizer.from_file(str(tokenizer_json)).get_vocab(with_added_tokens=True)
    except Exception as error:  # the library raises bare Exception
        raise CheckpointInvalid(reason=f"{tokenizer_json.name} cannot be read ({error})") from None
    names = {token_id: token for token, token_id in sorted(ids.items(), reverse=True)}
    return [names[token_id] if token_id in names else _unused(token_id, ids) for token_id in range(size)]


def _unused(token_id: int, taken: Container[str]) -> str:
    name = f"<unused_{token_id}>"
    while name in taken:
        name += "_"
    return name
