"""Several end ids for an executor that knows one.

Only its `end_id` is left out of the output, and cannot be chosen before `min_tokens`. The others go as stop
words of one token, which responses.py takes out of the output again; where there is a minimum, which stop
words do not know, responses.py itself ends the sequence at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.engines.tokenizer_files import eos_token, read_object

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path


def in_order(end_ids: AbstractSet[int], vocab_size: int, eos_id: int | None) -> tuple[int, ...]:
    """The end ids that the model can write at all; the first one is for the executor's `end_id`.

    That is the tokenizer's own EOS, which a model writes most: Llama 3 ends its turns in <|eot_id|>, and has
    other end ids with lower numbers.
    """
    known = sorted(token for token in end_ids if 0 <= token < vocab_size)
    return tuple(sorted(known, key=lambda token: token != eos_id))


def eos_of(tokenizer_dir: Path) -> int | None:
    """The id of `eos_token` in tokenizer_config.json; None where the files do not say."""
    text = eos_token(tokenizer_dir)
    if text is None:
        return None
    tokenizer = read_object(tokenizer_dir / "tokenizer.json")
    ids = {added["content"]: added["id"] for added in tokenizer.get("added_tokens") or ()}
    vocabulary = (tokenizer.get("model") or {}).get("vocab")
    if text not in ids and isinstance(vocabulary, dict):
        ids = vocabulary
    found = ids.get(text)
    return found if isinstance(found, int) else None
