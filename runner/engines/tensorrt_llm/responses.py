"""From `executor.Response` to outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import FinishReason, Output
from shared.errors import TensorRTLLMError

from .errors import coded

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(slots=True)
class Sequencer:
    """The responses to one request, as they come.

    End ids other than the first are stop words to TensorRT-LLM, which leaves stop words in the output. Such a
    token is held back until it is known whether the sequence ends with it: if so, it is not output. If the
    request has a minimum of tokens, they are not stop words, and the first one from there on is the end: then
    the executor must be told.
    """

    request_id: int
    other_end_ids: frozenset[int]
    minimum: int = 0
    """How many tokens must come before the sequence may end."""
    _held: list[int] = field(default_factory=list)
    _told: int = 0

    def output(self, response: Any) -> Output | None:
        """The output for a response; None when there is nothing to report yet."""
        if response.has_error():
            return Output(self.request_id, error=coded(response.error_msg))
        result = response.result
        beams: Sequence[Sequence[int]] = result.output_token_ids
        tokens = [*self._held, *(beams[0] if beams else ())]
        self._held.clear()
        if self.minimum:
            for place, token in enumerate(tokens):
                if token in self.other_end_ids and self._told + place >= self.minimum:
                    return Output(self.request_id, tokens[:place], FinishReason.END_ID)
            self._told += len(tokens)
        ends_in_end_id = not self.minimum and bool(tokens) and tokens[-1] in self.other_end_ids
        if not result.is_final:
            if ends_in_end_id:
                self._held.append(tokens.pop())
            return Output(self.request_id, tokens) if tokens else None
        reason = FinishReason[result.finish_reasons[0].name] if result.finish_reasons else None
        if not reason:
            failure = TensorRTLLMError(reason="it ended a request and did not say why")
            return Output(self.request_id, error=failure)
        if reason is FinishReason.STOP_WORDS and ends_in_end_id:
            return Output(self.request_id, tokens[:-1], FinishReason.END_ID)
        return Output(self.request_id, tokens, reason)
