"""The tokenizer of one model, from the files that it is published with."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import tokenizers

from shared.errors import PromptTooLong, TritonTokenizerError
from shared.unreadable import reason_of, why_no_json

from .pieces import BYTE_TOKEN, Pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Tokenizer:
    """Text to token ids and back. Thread-safe.

    `end_ids` are the tokens that end a text: those of generation_config.json, else the `eos_token` of
    tokenizer_config.json, else those of config.json; empty when none of them has any.
    """

    def __init__(
        self,
        library_tokenizer: tokenizers.Tokenizer,
        *,
        bos_id: int | None = None,
        add_bos: bool | None = None,
        end_ids: frozenset[int] = frozenset(),
    ) -> None:
        """With `add_bos` None, the post-processor of tokenizer.json decides whether a BOS is put in front."""
        # Neither is meant for generation: a prompt would be silently cut or padded.
        library_tokenizer.no_truncation()
        library_tokenizer.no_padding()
        self._tokenizer = library_tokenizer
        self._bos_id = bos_id
        with _coded("its special tokens do not fit"):
            always_added = library_tokenizer.encode("").ids
        self._processor_adds_bos = bos_id is not None and always_added[:1] == [bos_id]
        self._add_bos = self._processor_adds_bos if add_bos is None or bos_id is None else add_bos
        self.end_ids = end_ids
        self.vocab_size: int = library_tokenizer.get_vocab_size()
        self.pieces = Pieces(library_tokenizer)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read tokenizer.json, and tokenizer_config.json, generation_config.json and config.json if they
        exist.

        Raises TritonTokenizerError.
        """
        path = directory / "tokenizer.json"
        if not path.is_file():
            raise TritonTokenizerError(reason="tokenizer.json is missing")
        with _coded("tokenizer.json cannot be read"):
            library_tokenizer = tokenizers.Tokenizer.from_file(str(path))

        config = _JsonFile(directory / "tokenizer_config.json")
        generation = _JsonFile(directory / "generation_config.json")
        model = _JsonFile(directory / "config.json")

        def id_of(token: str | None) -> int | None:
            return None if token is None else library_tokenizer.token_to_id(token)

        bos_id, eos_id = id_of(config.token("bos_token")), id_of(config.token("eos_token"))
        if bos_id is None:
            bos_id = next(iter(generation.ids("bos_token_id") or model.ids("bos_token_id")), None)
        end_ids = generation.ids("eos_token_id")
        if not end_ids:
            end_ids = model.ids("eos_token_id") if eos_id is None else [eos_id]
        return cls(
            library_tokenizer,
            bos_id=bos_id,
            add_bos=config.flag("add_bos_token"),
            end_ids=frozenset(end_ids),
        )

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a prompt, with the special ones that the model expects around it.

        A BOS with which the text itself begins (many prompt templates do) is not doubled. A text that already
        holds all its special tokens, like one from a chat template, gets none if `add_special_tokens` is
        false. Raises TritonTokenizerError for text that the tokenizer has no tokens for.
        """
        with _coded("it cannot encode the prompt"):
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return self._with_bos(ids) if add_special_tokens else ids

    def some(self) -> list[int]:
        """The tokens of a short text, for a request that only tries the engine."""
        try:
            return self.encode("a") or [0]
        except TritonTokenizerError:  # its vocabulary has no such word
            return [0]

    def encode_all(
        self, texts: Sequence[str], longest: int, *, add_special_tokens: bool = True
    ) -> list[list[int]]:
        """`encode` of each, while other Python threads run; slower for a single short text.

        Raises TritonTokenizerError when one of them cannot be encoded, PromptTooLong when one has more than
        `longest` tokens: a list of millions would stop all threads while it is made.
        """
        with _coded("it cannot encode the prompt"):
            found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        if (most := max(map(len, found), default=0)) > longest:
            raise PromptTooLong(prompt_tokens=most, max_prompt_tokens=longest)
        tokens = [encoding.ids for encoding in found]
        return [self._with_bos(ids) for ids in tokens] if add_special_tokens else tokens

    def _with_bos(self, ids: list[int]) -> list[int]:
        """With one BOS if the model wants it, else with none."""
        if self._bos_id is None:
            return ids
        written = ids[1:2] if self._processor_adds_bos else ids[:1]
        wanted = self._add_bos and written != [self._bos_id]
        if wanted and not self._processor_adds_bos:
            ids.insert(0, self._bos_id)
        elif self._processor_adds_bos and not wanted:
            del ids[0]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of all these tokens together, without the special ones."""
        return self._tokenizer.decode(ids, skip_special_tokens=True)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token by itself, perhaps part of a character; of a special one, its name."""
        piece = self.pieces[token_id]
        token = self._tokenizer.id_to_token(token_id) or ""
        if piece is not None:
            return piece or token.encode()
        if found := BYTE_TOKEN.fullmatch(token):
            return bytes([int(found[1], 16)])
        return self.pieces.text_of([token_id], first=False).encode()


@contextmanager
def _coded(what: str) -> Iterator[None]:
    """Code what the library raises: bare `Exception`s, and panics, which are `BaseException`s."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TritonTokenizerError(reason=f"{what}: {error}") from error


class _JsonFile:
    """One of the optional files beside tokenizer.json; an absent one counts as empty."""

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._content: dict[str, Any] = {}
        if not path.is_file():
            return
        try:
            content = json.loads(path.read_bytes())
        except OSError as error:
            raise TritonTokenizerError(reason=f"{self._name} cannot be read: {reason_of(error)}") from error
        except (ValueError, RecursionError) as error:
            raise TritonTokenizerError(reason=f"{self._name} {why_no_json(error)}") from error
        if not isinstance(content, dict):
            raise TritonTokenizerError(reason=f"{self._name} is not a JSON object")
        self._content = content

    def token(self, key: str) -> str | None:
        """A special token: a string, or an object whose `content` is that string."""
        value = self._content.get(key)
        if isinstance(value, dict):
            value = value.get("content")
        if value is not None and not isinstance(value, str):
            raise self._invalid(key)
        return value

    def ids(self, key: str) -> list[int]:
        """One token id or a list of them."""
        value = self._content.get(key)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(type(token_id) is int for token_id in ids):
            raise self._invalid(key)
        return ids

    def flag(self, key: str) -> bool | None:
        value = self._content.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._invalid(key)
        return value

    def _invalid(self, key: str) -> TritonTokenizerError:
        return TritonTokenizerError(reason=f"{key} in {self._name} is {self._content[key]!r}")
