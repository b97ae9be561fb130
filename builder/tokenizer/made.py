"""What the converter makes of a model's tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class Original(Protocol):
    """The model's own tokenizer."""

    end: str | None
    """The token that ends a text."""
    ordinary: Sequence[int]
    """The ids of the tokens that are not special."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """A special token in the text counts as one; `add_special_tokens` adds those that a prompt needs."""

    def decode(self, ids: Sequence[int]) -> str:
        """Without the special ones."""


class Made(NamedTuple):
    """The files that were made, by name, and what they must agree with."""

    original: Original
    files: dict[str, str]
