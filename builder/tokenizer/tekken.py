"""tekken.json, the tokenizer of Mistral's newer models: what is in one, checked. Standard library only."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from builder.model_json import read_object
from shared.errors import TokenizerNotConverted

if TYPE_CHECKING:
    from pathlib import Path

_T = TypeVar("_T")

TEKKEN = "tekken.json"
BOS, EOS, UNKNOWN, PADDING = "<s>", "</s>", "<unk>", "<pad>"
# Only files of these versions may leave the special tokens out; what those are is a convention.
_UNLISTED_IN = ("v3", "v7")
_UNLISTED = (
    UNKNOWN, BOS, EOS, "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", PADDING, "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
_BYTES = [bytes([value]) for value in range(256)]
_MOST_SPECIAL = 1 << 16  # files of models have 1,000


class Tekken(NamedTuple):
    """The special tokens have the first ids, in this order; the others follow."""

    pattern: str
    """Divides a text into pieces that no token crosses."""
    special: list[str]
    tokens: list[bytes]
    """By rank: of two tokens that can be made in a text, the one of the lower rank is."""


def read_tekken(path: Path) -> Tekken:
    """What is in the file. Raises CheckpointInvalid if it is not JSON, TokenizerNotConverted for content that
    is no tokenizer.
    """
    content = read_object(path)
    config, vocabulary = _value(content, "config", dict), _value(content, "vocab", list)
    size, reserved = (
        _value(config, key, int) for key in ("default_vocab_size", "default_num_special_tokens")
    )
    count = size - reserved  # files list more than are used
    if not (0 < reserved <= _MOST_SPECIAL and len(_BYTES) <= count <= len(vocabulary)):
        raise _damaged("has numbers of tokens in its config that do not fit its vocab")
    listed = content.get("special_tokens")
    if listed is None and config.get("version") not in _UNLISTED_IN:
        raise _damaged("does not list its special tokens")
    special = list(_UNLISTED) if listed is None else _ranked(content, "special_tokens", "token_str")
    special += [f"<SPECIAL_{id_}>" for id_ in range(len(special), reserved)]
    if not len(special) == len(set(special)) == reserved or "" in special:
        raise _damaged(f"has a special token twice or without a name, or more than {reserved}")
    tokens = [_decoded(text) for text in _ranked(content, "vocab", "token_bytes", count)]
    if tokens[: len(_BYTES)] != _BYTES or len(tokens) != len(set(tokens)) or b"" in tokens:
        raise _damaged("has a token twice or without bytes, or does not begin with the 256 bytes")
    pattern = _value(config, "pattern", str)
    try:
        "".join((pattern, *special)).encode()
    except UnicodeEncodeError:
        raise _damaged("has text that is not Unicode") from None
    return Tekken(pattern, special, tokens)


def _value(content: object, key: str, kind: type[_T]) -> _T:
    """Raises TokenizerNotConverted when `content` is no object that has such a value."""
    value = content.get(key) if isinstance(content, dict) else None
    if type(value) is not kind:  # a bool is no number
        raise _damaged(f"has no valid {key}")
    return value


def _ranked(content: object, key: str, text: str, count: int | None = None) -> list[str]:
    """The `text` of each entry of a list, or of the first `count`, whose ranks are 0, 1, 2, ... in order."""
    entries = _value(content, key, list)[:count]
    if any(_value(entry, "rank", int) != place for place, entry in enumerate(entries)):
        raise _damaged(f"has ranks in its {key} that are not 0, 1, 2, ... in order")
    return [_value(entry, text, str) for entry in entries]


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _damaged("has token_bytes that are not base64") from None


def _damaged(what: str) -> TokenizerNotConverted:
    return TokenizerNotConverted(reason=f"{TEKKEN} {what}")
