"""How an engine's outputs become the answers of Triton's own vLLM backend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runner.engines.replies import is_last
from runner.prediction.structured_output import structured_output
from runner.protocol.engine import FinishReason, Request
from runner.protocol.outputs import TensorsOutput
from runner.protocol.vllm import decode_backend_request, encode_tensors
from runner.text.stream import TextStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.protocol.engine import Output
    from runner.protocol.frames import RequestFrame
    from runner.protocol.vllm import BackendRequest
    from runner.text.tokenizer import Tokenizer

_REASONS = {
    FinishReason.NOT_FINISHED: "None",
    FinishReason.END_ID: "stop",
    FinishReason.STOP_WORDS: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.TIMED_OUT: "abort",
    FinishReason.CANCELLED: "abort",
}


class BackendReply:
    """Text up to the first stop word, and what is reported about it."""

    def __init__(self, asked: BackendRequest, tokenizer: Tokenizer, prompt_tokens: int) -> None:
        self.ended = False
        self._asked = asked
        self._tokenizer = tokenizer
        self._prompt_tokens = prompt_tokens
        self._stream = TextStream(tokenizer, asked.stop, asked.sampling.min_tokens or 0)
        self._texts: list[str] = [asked.text] if asked.echo else []  # not sent yet
        self._tokens = 0  # of these
        self._log_probs: list[dict[str, object]] = []  # of these
        self._cumulative = 0.0

    def take(self, output: Output) -> Output | TensorsOutput | None:
        """What to send for this output of the engine; None: nothing yet, or nothing more."""
        if self.ended or output.error is not None:
            answer = None if self.ended else output
            self.ended = True
            return answer
        before = self._stream.token_count
        # What has ended with a stop token: that is counted, but it is no text.
        stopped_by = int(output.finish_reason is FinishReason.STOP_WORDS)
        text = self._stream.push(output.tokens[: len(output.tokens) - stopped_by])
        new = self._stream.token_count - before
        if not self._stream.stopped:
            new += stopped_by
        self._note(output, new)
        last = is_last(output)
        if last and not self._stream.stopped:
            text += self._stream.finish()
        self._texts.append(text)
        self.ended = last or self._stream.stopped
        if not (self.ended or (self._asked.streaming and text)):
            return None
        reason = FinishReason.STOP_WORDS if self._stream.stopped else output.finish_reason
        return TensorsOutput(output.request_id, encode_tensors(self._told(reason)), reason)

    def _note(self, output: Output, new: int) -> None:
        self._tokens += new
        for token, chosen in list(zip(output.tokens, output.log_probs, strict=False))[:new]:
            self._cumulative += chosen.chosen
            ranked: dict[int, tuple[float, int | None]] = {
                one: (value, rank) for rank, (one, value) in enumerate(chosen.likeliest, start=1)
            }
            if token not in ranked:
                ranked[token] = chosen.chosen, chosen.rank
            self._log_probs.append(
                {
                    str(one): {
                        "logprob": value,
                        "rank": rank,
                        "decoded_token": self._tokenizer.decode([one]),
                    }
                    for one, (value, rank) in ranked.items()
                }
            )

    def _told(self, reason: FinishReason) -> dict[str, str | float]:
        told: dict[str, str | float] = {
            "finish_reason": _REASONS[reason],
            "cumulative_logprob": self._cumulative,
            "logprobs": json.dumps(self._log_probs if self._asked.log_probs is not None else None),
            "num_input_tokens": self._prompt_tokens,
            "num_output_tokens": self._tokens,
        }
        made = {"text_output": "".join(self._texts)} | {
            name: value for name, value in told.items() if name in self._asked.returned
        }
        self._texts, self._tokens, self._log_probs = [], 0, []
        return made


def _bad_words(word: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Its tokens at the beginning of a text and within it where those are as many, as vLLM has it."""
    bare = word.lstrip()
    sent, first, within = (
        tokenizer.encode(form, add_special_tokens=False) for form in (word, bare, f" {bare}")
    )
    return [first, within] if len(first) == len(within) and first[:1] != within[:1] else [sent]


def decode_for_backend(
    frame: RequestFrame, tokenizer: Callable[[], Tokenizer]
) -> tuple[Request, BackendReply]:
    """The request for the engine, and what turns its outputs into answers.

    Raises StructuredOutputInvalid, MalformedRequest and TensorNotSupported for its inputs,
    TritonTokenizerError when the tokenizer cannot be used.
    """
    asked = decode_backend_request(frame)
    words = tokenizer()
    prompt = words.encode(asked.text)
    request = Request(
        request_id=asked.request_id,
        input_token_ids=prompt,
        max_tokens=asked.max_tokens,
        end_ids=frozenset() if asked.ignores_end else words.end_ids,
        stop_words=[[token] for token in asked.stop_token_ids],
        bad_words=[tokens for word in asked.bad_words for tokens in _bad_words(word, words)],
        logit_bias=asked.logit_bias,
        log_probs=asked.log_probs,
        structured_output=structured_output(asked.structure),
        lora=asked.lora,
        sampling=asked.sampling,
        # Stop words are found in the text as it arrives: the engine must be stopped there.
        streaming=asked.streaming or bool(asked.stop),
    )
    return request, BackendReply(asked, words, len(prompt))
