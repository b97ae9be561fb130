"""From a tokenizer that transformers has a slow form of, which the result is compared with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from builder.tokenizer.made import Made
from shared.errors import TokenizerNotConverted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def from_slow(model: Path) -> Made:
    """Raises TokenizerNotConverted, and whatever the library's readers raise."""
    slow, fast = _tokenizers(model)
    return Made(_Slow(slow), {"tokenizer.json": fast.backend_tokenizer.to_str(pretty=True)})


class _Slow:
    def __init__(self, slow: Any) -> None:
        self._slow = slow
        self.end: str | None = slow.eos_token
        special = set(slow.all_special_ids) | set(slow.added_tokens_decoder)
        self.ordinary: Sequence[int] = [id_ for id_ in range(len(slow)) if id_ not in special]

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        ids: list[int] = self._slow.encode(text, add_special_tokens=add_special_tokens)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        options = {"clean_up_tokenization_spaces": False, "spaces_between_special_tokens": False}
        decoded: str = self._slow.decode(ids, skip_special_tokens=True, **options)
        return decoded


def _tokenizers(model: Path) -> tuple[Any, Any]:
    """The model's tokenizer, and a fast one that was made from it. Raises TokenizerNotConverted."""
    # Read when the library is imported: it must not ask the hub, nor give advice.
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    from transformers import AutoTokenizer

    options = {"trust_remote_code": False, "local_files_only": True}
    slow = AutoTokenizer.from_pretrained(model, use_fast=False, **options)
    if slow is False:  # what the library makes of a file that sentencepiece cannot read
        raise TokenizerNotConverted(reason="its files cannot be read")
    if slow.is_fast:  # tokenizer_config.json names the fast class
        if slow.slow_tokenizer_class is None:
            raise TokenizerNotConverted(reason=f"{type(slow).__name__} has no slow form to compare with")
        slow = slow.slow_tokenizer_class.from_pretrained(model, **options)
    fast = AutoTokenizer.from_pretrained(model, use_fast=True, from_slow=True, **options)
    if not fast.is_fast:
        raise TokenizerNotConverted(reason=f"{type(slow).__name__} cannot be written as tokenizer.json")
    if len(slow) != len(fast) or _added(slow) != _added(fast):
        raise TokenizerNotConverted(reason="its special tokens would have other ids")
    return slow, fast


def _added(tokenizer: Any) -> dict[int, str]:
    return {id_: str(token) for id_, token in tokenizer.added_tokens_decoder.items()}
