"""The ids of tokens in tokenizer.json, without its library. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def token_id(tokenizer: Mapping[str, Any], text: str) -> int | None:
    """The id of the token `text` in what tokenizer.json holds: of an added one, else in the vocabulary.

    None if there is none, or the content is of another form.
    """
    added = tokenizer.get("added_tokens")
    for entry in added if isinstance(added, list) else ():
        if isinstance(entry, dict) and entry.get("content") == text and type(entry.get("id")) is int:
            return int(entry["id"])
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        id_ = vocabulary.get(text)
        return id_ if type(id_) is int else None
    if isinstance(
        vocabulary, list
    ):  # of a Unigram model: tokens with their scores, in the order of their ids
        pairs = (entry[0] if isinstance(entry, list) and entry else None for entry in vocabulary)
        return next((id_ for id_, piece in enumerate(pairs) if piece == text), None)
    return None
