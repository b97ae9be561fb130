"""The original's predictor: events from Triton's HTTP, and the whole sequence decoded for each token.

Cog's server starts it as `predictor.py:Predictor`.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, ClassVar

import httpx2
from cog import BaseRunner, ConcatenateIterator, Input, streaming
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

_PENDING = "\N{REPLACEMENT CHARACTER}"  # a letter of which not all bytes are there yet


class Predictor(BaseRunner):
    """Text from the ensemble that BASELINE_TRITON names."""

    streams: ClassVar[bool] = True

    def setup(self) -> None:
        """Load the tokenizer, and keep connections to Triton."""
        self._tokenizer = Tokenizer.from_file(os.environ["BASELINE_TOKENIZER"])
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx2.Client(timeout=None, limits=limits)
        self._url = f"{os.environ['BASELINE_TRITON']}/v2/models/ensemble/generate_stream"

    @streaming
    async def run(
        self,
        prompt: str = Input(description="What goes on."),
        max_tokens: int = Input(default=16, description="How many."),
    ) -> ConcatenateIterator[str]:
        """Stream text."""
        return self._text(prompt, max_tokens)

    def _text(self, prompt: str, max_tokens: int) -> Iterator[str]:
        tokens: list[int] = []
        told = ""
        body = {"text_input": prompt, "max_tokens": max_tokens, "stream": True}
        with self._client.stream("POST", self._url, json=body) as answer:
            for line in answer.iter_lines():
                if not line.startswith("data:"):
                    continue
                event = json.loads(line.removeprefix("data:"))
                new = event["output_ids"]
                tokens += new if isinstance(new, list) else [new]
                text = self._tokenizer.decode(tokens).replace(_PENDING, "")
                piece, told = text.removeprefix(told), text
                if piece:
                    yield piece
