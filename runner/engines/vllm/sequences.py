"""From the engine core's outputs for one request to ours: how it ends, and stop words of several tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.engine import FinishReason as CoreFinish

from runner.protocol.engine import FinishReason, LogProbs, Output
from shared.errors import EngineInternalError, StructuredOutputInvalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.protocol.engine import Request
    from shared.errors import CogTritonError


class SequenceOutputs:
    """Turns one request's outputs into ours. `ended` says that the last one has been given."""

    __slots__ = (
        "_end_ids",
        "_first",
        "_is_structured",
        "_log_probs",
        "_min_tokens",
        "_stop_words",
        "_tail",
        "ended",
        "request_id",
    )

    def __init__(self, request: Request) -> None:
        self.request_id = request.request_id
        self.ended = False
        self._first = True
        self._end_ids = request.end_ids
        self._is_structured = request.structured_output is not None
        self._log_probs = request.log_probs
        self._min_tokens = max(request.sampling.min_tokens or 0, 0)
        # The engine core itself finds those of one token.
        self._stop_words = [tuple(word) for word in request.stop_words if len(word) > 1]
        self._tail: list[int] = []  # all tokens so far, if stop words of several tokens are searched for

    def take(self, output: Any) -> Output | None:
        """Our output for an `EngineCoreOutput`; None when it holds nothing."""
        tokens: Sequence[int] = output.new_token_ids
        reason = FinishReason.NOT_FINISHED
        if output.finish_reason is not None:
            if output.finish_reason is CoreFinish.ERROR:
                self.ended = True
                return Output(self.request_id, error=self._error(output))
            reason = self._reason(output)
            if reason is FinishReason.END_ID:
                tokens = tokens[:-1]  # an end id is not output
        if self._stop_words and (stopped := self._stopped_after(tokens)) is not None:
            tokens, reason = tokens[:stopped], FinishReason.STOP_WORDS
        cached = None
        if self._first:
            self._first = False
            if output.prefill_stats is not None:
                cached = output.prefill_stats.num_cached_tokens
        self.ended = reason is not FinishReason.NOT_FINISHED
        if not tokens and not self.ended and cached is None:
            return None
        if self._log_probs is None:
            return Output(self.request_id, tokens, reason, None, (), cached)
        log_probs = _log_probs(output.new_logprobs, len(tokens), self._log_probs)
        return Output(self.request_id, tokens, reason, None, log_probs, cached)

    def _error(self, output: Any) -> CogTritonError:
        told = getattr(output, "error", None)  # from 0.33 on
        if text := getattr(told, "message", None):
            return EngineInternalError(reason=text)
        if self._is_structured and (output.new_token_ids or not self._first):
            return StructuredOutputInvalid(reason="it becomes too complex in the course of the text")
        return EngineInternalError(reason="vLLM does not say why")

    def _reason(self, output: Any) -> FinishReason:
        match output.finish_reason:
            case CoreFinish.STOP:
                # All end ids are sent as stop tokens, so that the reason is the token.
                stop = output.stop_reason
                return (
                    FinishReason.END_ID if stop is None or stop in self._end_ids else FinishReason.STOP_WORDS
                )
            case CoreFinish.ABORT:
                return FinishReason.CANCELLED
            case CoreFinish.LENGTH:
                return FinishReason.LENGTH
            case _:
                return FinishReason.STOP_WORDS  # a repetition, if detecting one was asked for

    def _stopped_after(self, tokens: Sequence[int]) -> int | None:
        """The number of new tokens after which a stop word is complete; None: it is not."""
        for count, token in enumerate(tokens, start=1):
            self._tail.append(token)
            if len(self._tail) < self._min_tokens:
                continue
            for word in self._stop_words:
                if token == word[-1] and tuple(self._tail[-len(word) :]) == word:
                    return count
        return None


def _log_probs(lists: Any, count: int, others: int) -> list[LogProbs]:
    """For each token: row 0 is the token's own, the rest the likeliest ones."""
    if lists is None:
        return []
    ids, values, ranks = (part[:count].tolist() for part in lists[:3])
    return [
        LogProbs(own[0], tuple(zip(row[1 : others + 1], own[1 : others + 1], strict=True)), rank)
        for row, own, rank in zip(ids, values, ranks, strict=True)
    ]
