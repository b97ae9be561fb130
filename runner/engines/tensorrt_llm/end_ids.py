"""Several end ids for an executor that supports one.

Only its `end_id` is omitted from the output, and cannot be chosen before `min_tokens`. The others are sent as
stop words of one token, which responses.py removes from the output again; if there is a minimum, which stop
words ignore, responses.py itself ends the sequence at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.engines.tokenizer_files import eos_token, read_object
from shared.token_ids import token_id

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from pathlib import Path


def in_order(end_ids: AbstractSet[int], vocab_size: int, eos_id: int | None) -> tuple[int, ...]:
    """The end ids that the model can write at all; the first one is for the executor's `end_id`.

    That is the tokenizer's own EOS, which a model writes most often: Llama 3 ends its turns with <|eot_id|>,
    and has other end ids with lower numbers.
    """
    known = sorted(token for token in end_ids if 0 <= token < vocab_size)
    return tuple(sorted(known, key=lambda token: token != eos_id))


def eos_of(tokenizer_dir: Path) -> int | None:
    """The id of `eos_token` in tokenizer_config.json; None if the files do not say."""
    text = eos_token(tokenizer_dir)
    if text is None:
        return None
    return token_id(read_object(tokenizer_dir / "tokenizer.json"), text)
