"""How an engine's outputs become the answer to a request that wants them in another form."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from runner.protocol.engine import FinishReason, Output, Request
from runner.protocol.outputs import TextOutput
from runner.protocol.text import decode_text_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from runner.protocol.engine import LogProbs
    from runner.protocol.frames import RequestFrame
    from runner.protocol.outputs import TensorsOutput
    from runner.text.tokenizer import Tokenizer


class Reply(Protocol):
    """What turns one request's outputs into its answer."""

    ended: bool
    """Whether the answer is complete; the engine may not know yet."""

    def take(self, output: Output) -> Output | TextOutput | TensorsOutput | None:
        """What to send for this output of the engine; None: nothing yet, or nothing more."""


def is_last(output: Output) -> bool:
    """Whether the engine has no further output for its request."""
    return output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED


class GatheredTokens:
    """One output at the end, for a request that does not stream."""

    def __init__(self) -> None:
        self.ended = False
        self._tokens: list[int] = []
        self._log_probs: list[LogProbs] = []

    def take(self, output: Output) -> Output | None:
        self._tokens += output.tokens
        self._log_probs += output.log_probs
        self.ended = is_last(output)
        return output._replace(tokens=self._tokens, log_probs=self._log_probs) if self.ended else None


class TextReply:
    """Text instead of tokens, up to the first stop word."""

    def __init__(self, tokenizer: Tokenizer, stop_words: Sequence[str], *, streaming: bool) -> None:
        from runner.text.stream import TextStream

        self.ended = False
        self._stream = TextStream(tokenizer, stop_words)
        self._streaming = streaming
        self._gathered: list[str] = []

    def take(self, output: Output) -> Output | TextOutput | None:
        if self.ended or output.error is not None:
            answer = None if self.ended else output
            self.ended = True
            return answer
        text = self._stream.push(output.tokens)
        last = is_last(output)
        if last and not self._stream.stopped:
            text += self._stream.finish()
        reason = FinishReason.STOP_WORDS if self._stream.stopped else output.finish_reason
        self.ended = last or self._stream.stopped
        if not self._streaming:
            self._gathered.append(text)
            text = "".join(self._gathered) if self.ended else ""
        return TextOutput(output.request_id, text, reason) if text or self.ended else None


class TextInterface:
    """Requests that arrive as text, for the engine in `engine_dir`."""

    def __init__(self, engine_dir: Path) -> None:
        self._engine_dir = engine_dir

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises TritonTokenizerError when it cannot be used."""
        # Not before it is asked for: most engines are never asked for text here.
        from runner.text.tokenizer import Tokenizer

        directory = self._engine_dir / "tokenizer"
        return Tokenizer.load(directory if directory.is_dir() else self._engine_dir)

    def decode(self, frame: RequestFrame) -> tuple[Request, TextReply]:
        """The request for the engine, and what makes text of its outputs.

        Raises MalformedRequest and TensorNotSupported for its inputs, TritonTokenizerError when the tokenizer
        cannot be used.
        """
        asked = decode_text_request(frame)
        tokenizer = self.tokenizer
        request = Request(
            request_id=asked.request_id,
            input_token_ids=tokenizer.encode(asked.text),
            max_tokens=asked.max_tokens,
            end_ids=tokenizer.end_ids if asked.end_ids is None else asked.end_ids,
            bad_words=[tokenizer.encode(word, add_special_tokens=False) for word in asked.bad_words],
            sampling=asked.sampling,
            # A stop word is found in the text as it arrives: the engine must be stopped there.
            streaming=asked.streaming or bool(asked.stop_words),
        )
        return request, TextReply(tokenizer, asked.stop_words, streaming=asked.streaming)
