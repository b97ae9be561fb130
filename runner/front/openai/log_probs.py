"""Log probabilities, in the forms of OpenAI's two endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

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
        self._offset = 0  # characters

    def tell(self, tokens: Sequence[int], log_probs: Sequence[LogProbs]) -> dict[str, Any]:
        """Those of the next tokens."""
        texts = [self._text(token) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [max(one.chosen, _LEAST) for one in log_probs],
            "top_logprobs": [
                {text: max(one.chosen, _LEAST)}
                | {self._text(other): max(value, _LEAST) for other, value in one.likeliest}
                for text, one in zip(texts, log_probs, strict=True)
            ],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._tokenizer.token_bytes(token).decode(errors="replace")
