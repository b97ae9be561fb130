"""A tokenizer whose tokens can be counted, and which stays the same whatever words the mock engine obeys."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit


def word_tokenizer() -> Tokenizer:
    """The word n is token n + 5, every other word 0."""
    words = {str(number): number + 5 for number in range(10_000)}
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, **words}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer
