"""Log probabilities, in the forms of OpenAI's two endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from runner.text.detokenizer import Detokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.protocol.engine import LogProbs
    from runner.text.tokenizer import Tokenizer

_LEAST = -9999.0  # OpenAI's word for "as good as impossible"; JSON has no infinity


class LogProbsTeller(Protocol):
    """Reports those of one text, some tokens at a time."""

    def tell(self, tokens: Sequence[int], log_probs: Sequence[LogProbs]) -> dict[str, Any]:
        """Those of the next tokens."""


def joined(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Reports on parts of a text, joined to one on the whole."""
    whole: dict[str, Any] = dict(told[0])
    for key, value in whole.items():
        if isinstance(value, list):
            whole[key] = [one for part in told for one in part[key]]
    return whole


class ChatLogProbs:
    """Of `/v1/chat/completions`: an object for each token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def tell(self, tokens: Sequence[int], log_probs: Sequence[LogProbs]) -> dict[str, Any]:
        """Those of the next tokens."""
        content = [
            self._one(token, log_prob.chosen)
            | {"top_logprobs": [self._one(other, value) for other, value in log_prob.likeliest]}
            for token, log_prob in zip(tokens, log_probs, strict=True)
        ]
        return {"content": content, "refusal": None}

    def _one(self, token: int, value: float) -> dict[str, Any]:
        spelling = self._tokenizer.token_bytes(token)
        return {
            "token": spelling.decode(errors="replace"),
            "logprob": max(value, _LEAST),
            "bytes": list(spelling),
        }


class CompletionLogProbs:
    """Of `/v1/completions`: a list for each kind of fact, with an entry for each token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._length = 0  # characters of the text so far

    def tell(self, tokens: Sequence[int], log_probs: Sequence[LogProbs]) -> dict[str, Any]:
        """Those of the next tokens."""
        texts = [self._text(token) for token in tokens]
        return {
            "tokens": texts,
            "token_logprobs": [max(one.chosen, _LEAST) for one in log_probs],
            "top_logprobs": [self._by_text(text, one) for text, one in zip(texts, log_probs, strict=True)],
            "text_offset": [self._offset(token) for token in tokens],
        }

    def _text(self, token: int) -> str:
        spelling = self._tokenizer.token_bytes(token)
        try:
            return spelling.decode()
        except UnicodeDecodeError:  # OpenAI's form of a part of a character: with U+FFFD, many would be one
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)

    def _by_text(self, chosen: str, log_probs: LogProbs) -> dict[str, float]:
        """The chosen token's and the likeliest ones'; of several with one text, the first counts."""
        found = {chosen: max(log_probs.chosen, _LEAST)}
        for token, value in log_probs.likeliest:
            found.setdefault(self._text(token), max(value, _LEAST))
        return found

    def _offset(self, token: int) -> int:
        """Where it begins in the text; of a part of a character, where that begins.

        The text may lack the space of its first token, and special tokens.
        """
        before = self._length
        self._length += len(self._detokenizer.push((token,)))
        own = len(self._tokenizer.token_bytes(token).decode(errors="replace"))
        return max(before, self._length - own)
