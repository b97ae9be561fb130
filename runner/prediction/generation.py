"""The text of one prediction, as it arrives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from runner.prediction.adapters import by_name
from runner.protocol.engine import FinishReason
from runner.text.stream import TextStream
from shared.errors import CogTritonError, GenericError, ShuttingDown
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.metrics import Metrics
    from runner.prediction.admission import Ticket
    from runner.prediction.preparation import Prepared
    from runner.protocol.engine import LogProbs
    from runner.text.tokenizer import Tokenizer
    from runner.triton.generation import Generation


log = get_logger()
_WHOLE = ("stop", "length")
"""How a text ends that has its end."""


class Piece(NamedTuple):
    """Some of the text, and the tokens that it was made from."""

    text: str
    tokens: Sequence[int]
    log_probs: Sequence[LogProbs] = ()
    """One for each token, if they were asked for."""


class TextGeneration:
    """An asynchronous iterator of pieces, each with all the text that is waiting. One task reads it.

    The text is cut at the first stop sequence. Iterating raises the coded error with which the request ended,
    ShuttingDown when the runner shut down before its end. After `cancel` it just ends.
    """

    def __init__(
        self,
        prepared: Prepared,
        generation: Generation,
        tokenizer: Tokenizer,
        ticket: Ticket,
        metrics: Metrics,
        prediction_id: str,
        received_at: float,
        *,
        log_performance: bool = False,
    ) -> None:
        """`received_at`: `time.perf_counter()` on arrival; uvloop's own clock has only milliseconds."""
        request = prepared.request
        self.prompt_tokens = len(request.input_token_ids)
        self.seed = request.sampling.seed
        self.cached_tokens: int | None = None
        self.cancelled = False
        self._generation = generation
        self._adapter = prepared.adapter
        self._text = TextStream(tokenizer, prepared.stop_sequences, request.sampling.min_tokens or 0)
        self._ticket = ticket
        self._metrics = metrics
        self._prediction_id = prediction_id
        self._log_performance = log_performance
        self._received_at = received_at
        self._first_token_at: float | None = None
        self._ended_at: float | None = None
        self._late = False
        self._flushed = False
        self._closed = False
        # Of text that is not known yet.
        self._tokens: list[int] = []
        self._log_probs: list[LogProbs] = []
        ticket.on_late = self._end_late
        metrics.sent(time.perf_counter() - received_at, self.prompt_tokens)

    @property
    def token_count(self) -> int:
        """Tokens so far, up to and including the one that completed a stop sequence."""
        return self._text.token_count

    @property
    def finish_reason(self) -> str | None:
        """`stop`, `length` or `cancelled`, once it has ended without an error."""
        if self._text.stopped:
            return "stop"
        if self.cancelled:
            return "cancelled"
        match self._generation.finish_reason:
            case FinishReason.NOT_FINISHED:
                return None
            case FinishReason.LENGTH:
                return "length"
            case FinishReason.CANCELLED | FinishReason.TIMED_OUT:
                return "cancelled"
            case _:
                return "stop"

    @property
    def is_complete(self) -> bool:
        """Whether the latest piece has the end of the text."""
        return self._flushed and self.finish_reason in _WHOLE

    def facts(self) -> dict[str, object]:
        """What Cog's metrics of a prediction say from its start on."""
        facts: dict[str, object] = {"input_token_count": self.prompt_tokens}
        return facts if self.seed is None else {**facts, "seed": self.seed}

    def results(self) -> dict[str, object]:
        """What they say at its end: tokens, seconds to the first, and how many came each second after it."""
        results: dict[str, object] = {"output_token_count": self.token_count}
        _, first, rate = self._speed()
        if first is not None:
            results["time_to_first_token"] = round(first, 6)
        if rate is not None:
            results["tokens_per_second"] = round(rate, 3)
        return results

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        try:
            piece = await self._next()
        except asyncio.CancelledError:
            self.cancel()
            self.close()
            raise
        except CogTritonError as told:
            # Kept in a variable here, the error and this frame would keep each other alive.
            raise self._failed(told) from None
        except Exception:
            log.exception("prediction failed", prediction_id=self._prediction_id)
            failure = GenericError()
            self._end("failed", failure)
            raise failure from None
        if piece is None:
            self._end("cancelled" if self.finish_reason == "cancelled" else "succeeded")
            raise StopAsyncIteration
        return piece

    def _failed(self, told: CogTritonError) -> CogTritonError:
        error = by_name(told, self._adapter)
        log.info("prediction failed", error=error.for_log(), prediction_id=self._prediction_id)
        self._end("failed", error)
        return error

    async def _next(self) -> Piece | None:
        text = self._text
        while not text.stopped:
            try:
                outputs = await self._generation.__anext__()
            except StopAsyncIteration:
                break
            if self._first_token_at is None:
                self._first_token_at = time.perf_counter()
            chunk = ""
            for output in outputs:
                before = text.token_count
                chunk += text.push(output.tokens)
                taken = text.token_count - before
                self._metrics.tokens += taken
                self._tokens += output.tokens[:taken]
                if output.log_probs:
                    self._log_probs += output.log_probs[:taken]
                if output.cached_tokens is not None:
                    self.cached_tokens = output.cached_tokens
            if chunk:
                if self.finish_reason in _WHOLE:
                    self._flushed = True
                    chunk += "" if text.stopped else text.finish()
                return self._piece(chunk)
        return self._rest()

    def _rest(self) -> Piece | None:
        """What was kept back, once there are no more tokens."""
        if self._flushed:
            return None
        self._flushed = True
        if self._late and self._generation.finish_reason is FinishReason.CANCELLED:
            raise ShuttingDown
        chunk = "" if self._text.stopped else self._text.finish()
        return self._piece(chunk) if chunk or self._log_probs else None

    def _piece(self, chunk: str) -> Piece:
        piece = Piece(chunk, self._tokens, self._log_probs)
        self._tokens = []
        if self._log_probs:
            self._log_probs = []
        return piece

    def cancel(self) -> None:
        """Stop the engine's work on it. May be called twice, and after its end."""
        if not self._closed:
            self.cancelled = True
            self._generation.cancel()

    def close(self) -> None:
        """Finish with it, whatever its state: if it has not ended, it is cancelled. May be called twice."""
        if not self._closed:
            self.cancel()
            self._end("cancelled")

    def _end_late(self) -> None:
        self._late = True
        self._generation.cancel()

    def _end(self, outcome: str, error: CogTritonError | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        self._generation.cancel()  # its text may have ended earlier
        self._ticket.leave()
        self._ended_at = time.perf_counter()
        duration, first, rate = self._speed()
        self._metrics.generated(self.token_count, first, duration)
        self._metrics.ended(outcome, error)
        if self._log_performance and outcome == "succeeded":
            log.info(
                "prediction",
                prediction_id=self._prediction_id,
                time_to_first_token=round(duration if first is None else first, 4),
                request_latency=round(duration, 4),
                output_sequence_length=self.token_count,
                output_token_throughput_per_user=None if rate is None else round(rate, 1),
            )

    def _speed(self) -> tuple[float, float | None, float | None]:
        """Seconds so far, seconds to the first token, and tokens a second after it."""
        duration = (self._ended_at or time.perf_counter()) - self._received_at
        if self._first_token_at is None:
            return duration, None, None
        first = self._first_token_at - self._received_at
        following, generating = self.token_count - 1, duration - first
        return duration, first, following / generating if following > 0 and generating > 0 else None
