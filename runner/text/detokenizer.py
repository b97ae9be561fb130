"""Token ids to text, as they arrive."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tokenizer import Tokenizer

_utf8_decoder = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Turns the tokens of one request into text, in time linear in their number.

    Whatever the tokens and however they are cut: everything that `push` returned plus `flush` equals
    `tokenizer.decode(all of them)`. The library's `DecodeStream` does not guarantee this: it withholds a
    U+FFFD that the model wrote and what ends in broken bytes, and reads all it holds again at every token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._pieces = tokenizer.pieces
        self._utf8 = _utf8_decoder("replace")
        self._first = self._pieces.first_differs  # no token has given text yet
        self._held: list[int] = []  # tokens whose text is not yet known

    def push(self, tokens: Sequence[int]) -> str:
        """The text that is now certain: no later token can change it."""
        certain = []
        for token in tokens:
            piece = self._pieces[token]
            if piece is None:
                self._held.append(token)
            elif piece and (self._held or self._first):
                self._held.append(token)
                # Empty when the decoder strips it; then the next token may be stripped too.
                if text := self._pieces.text_of(self._held, first=self._first):
                    certain.append(text.encode())
                    self._held.clear()
                    self._first = False
            else:
                certain.append(piece)
        return self._utf8.decode(b"".join(certain))

    def flush(self) -> str:
        """The rest of the text, once there are no more tokens; broken bytes have become U+FFFD."""
        rest = self._pieces.text_of(self._held, first=self._first).encode() if self._held else b""
        self._held.clear()
        return self._utf8.decode(rest, final=True)
