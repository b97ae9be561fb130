"""What each token of a vocabulary adds to the text, so that text can be made token by token.

A tokenizer's decoder works on a whole list of tokens. For nearly all decoders of language models, that equals
adding up one piece of text per token, with three exceptions: the first tokens of a list may lose a leading
space, tokens may hold parts of a UTF-8 character, and SentencePiece's byte tokens (`<0xE2>`) are turned into
text one unbroken run at a time. `Pieces` says for each token which case it is, by asking the library's own
decoder. The decoders are those of `tokenizers` 0.23 (its `decoders` module and the key `decoder` of
tokenizer.json).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import tokenizers

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>", re.ASCII)  # as the library reads them
_ANCHOR = "a"  # a token to put before others, which are then not the first


class Pieces(dict[int, bytes | None]):
    """Token id -> what it adds to the text when it is not the first, as UTF-8 (perhaps part of a character).

    `b""` means a token that the decoder never sees (special, or not in the vocabulary). None means a token
    whose text depends on its neighbours: see `text_of`. Filled as tokens are met; thread-safe.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._decoder = tokenizer.decoder
        self._special = {
            token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
        }
        stages = _stages(self._decoder)
        self._byte_level = stages is not None and [stage["type"] for stage in stages] == ["ByteLevel"]
        self._byte_fallback = stages is not None and any(stage["type"] == "ByteFallback" for stage in stages)
        self._anchor_text = "" if self._byte_level else self._decode([_ANCHOR])
        self._by_token = self._byte_level or (bool(self._anchor_text) and _adds_up(stages))

    @property
    def first_differs(self) -> bool:
        """Whether the first tokens of a text must go through `text_of`."""
        return not self._byte_level

    def __missing__(self, token_id: int) -> bytes | None:
        token = self._tokenizer.id_to_token(token_id)
        if token is None or token in self._special:
            piece: bytes | None = b""
        elif self._byte_level:
            piece = _byte_level_bytes(token)
        elif not self._by_token or (self._byte_fallback and BYTE_TOKEN.fullmatch(token)):
            piece = None
        else:
            # A token without text still separates two runs of byte tokens: it too is decoded with its
            # neighbours.
            piece = self._text_after_anchor([token]).encode() or None
        self[token_id] = piece
        return piece

    def text_of(self, token_ids: Sequence[int], *, first: bool) -> str:
        """The text of adjacent tokens; `first` when no token with text comes before them."""
        found = map(self._tokenizer.id_to_token, token_ids)
        tokens = [token for token in found if token is not None]
        return self._decode(tokens) if first else self._text_after_anchor(tokens)

    def _text_after_anchor(self, tokens: Iterable[str]) -> str:
        return self._decode([_ANCHOR, *tokens]).removeprefix(self._anchor_text)

    def _decode(self, tokens: list[str]) -> str:
        return " ".join(tokens) if self._decoder is None else self._decoder.decode(tokens)


def _stages(decoder: tokenizers.decoders.Decoder | None) -> list[dict[str, Any]] | None:
    """The decoder as its chain of stages, from its form in tokenizer.json; None if there is none."""
    if decoder is None:
        return None

    def flat(stage: dict[str, Any]) -> list[dict[str, Any]]:
        if stage["type"] != "Sequence":
            return [stage]
        return [inner for child in stage["decoders"] for inner in flat(child)]

    return flat(json.loads(decoder.__getstate__()))


def _adds_up(stages: list[dict[str, Any]] | None) -> bool:
    """Whether these stages give the first tokens' text plus one piece for each later token.

    Any other decoder (CTC drops repeated tokens, BPEDecoder treats the last one differently) yields its text
    only at the end of the stream.
    """
    if stages is None:
        return True
    kinds = [stage["type"] for stage in stages]
    fuse = kinds.index("Fuse") if "Fuse" in kinds else len(kinds)
    return {"Replace", "Strip", "Metaspace", "WordPiece", "ByteFallback"}.issuperset(kinds[:fuse]) and all(
        stage["type"] == "Fuse" or (stage["type"] == "Strip" and stage["stop"] == 0)
        for stage in stages[fuse:]
    )


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: the visible ones of Latin-1 as themselves, the others from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_LEVEL_ALPHABET = _byte_level_alphabet()


def _byte_level_bytes(token: str) -> bytes:
    try:
        return bytes(_BYTE_LEVEL_ALPHABET[character] for character in token)
    except KeyError:  # an added token, which is written unchanged
        return token.encode()
