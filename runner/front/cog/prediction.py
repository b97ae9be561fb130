"""One prediction, while it runs and after."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from runner.prediction.generation import TextGeneration

START = "processing"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELED = "canceled"


class Prediction:
    """What clients are told of one prediction: the same in answers, event streams and webhooks."""

    def __init__(self, prediction_id: str, inputs: dict[str, Any]) -> None:
        self.id = prediction_id
        self.inputs = inputs
        self.status = "starting"
        self.output: list[str] = []
        self.error: str | None = None
        self.metrics: dict[str, object] = {}
        self.created_at = _now()
        self.completed_at: str | None = None
        self.on_change: list[Callable[[str], object]] = []
        """Told `start`, `output` and `completed` when these happen."""
        self._generation: TextGeneration | None = None
        self._cancelled = False
        self._began = time.perf_counter()

    @property
    def ended(self) -> bool:
        """Whether nothing about it changes any more."""
        return self.completed_at is not None

    def view(self) -> dict[str, Any]:
        """As Cog tells of it; keys in Cog's order, which is that of the alphabet."""
        view: dict[str, Any] = {}
        if self.error is not None:
            view["error"] = self.error
        view |= {"id": self.id, "logs": "", "metrics": self.metrics}
        if self.output:
            view["output"] = self.output
        return view | {"status": self.status}

    def full_view(self) -> dict[str, Any]:
        """With what was asked, and when."""
        view = {**self.view(), "input": self.inputs, "created_at": self.created_at}
        if self.completed_at is not None:
            view["completed_at"] = self.completed_at
        return view

    def cancel(self) -> None:
        """Stop the engine's work on it. May be called twice, and after its end."""
        self._cancelled = True
        if self._generation is not None:
            self._generation.cancel()

    async def run(
        self,
        generation: TextGeneration | CogTritonError,
        send: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Follow the text to its end; `send` gets each event. Raises nothing that the text may fail with."""
        self._begin(generation)
        if send is not None:
            await send(self.beginning())
        try:
            if isinstance(generation, CogTritonError):
                raise generation
            await self._follow(generation, send)
        except CogTritonError as error:
            self._end(FAILED, str(error))
        except BaseException:
            self._end(CANCELED)
            raise
        finally:
            if not isinstance(generation, CogTritonError):
                generation.close()
        if send is not None:
            await send(self.ending())

    async def _follow(
        self, generation: TextGeneration, send: Callable[[bytes], Awaitable[None]] | None
    ) -> None:
        output, on_change = self.output, self.on_change
        async for piece in generation:
            text = piece.text
            if send is not None:
                await send(output_event(len(output), text))
            output.append(text)
            for tell in on_change:
                tell("output")
        self.metrics["output_token_count"] = generation.token_count
        self._end(CANCELED if generation.finish_reason == "cancelled" else SUCCEEDED)

    def _begin(self, generation: TextGeneration | CogTritonError) -> None:
        self.status = START
        if not isinstance(generation, CogTritonError):
            self._generation = generation
            self.metrics["input_token_count"] = generation.prompt_tokens
            if generation.seed is not None:
                self.metrics["seed"] = generation.seed
            if self._cancelled:
                generation.cancel()
        self._tell("start")

    def _end(self, status: str, error: str | None = None) -> None:
        self.status, self.error = status, error
        self.completed_at = _now()
        self.metrics["predict_time"] = round(time.perf_counter() - self._began, 6)
        self.metrics = dict(sorted(self.metrics.items()))
        self._generation = None
        self._tell("completed")

    def _tell(self, event: str) -> None:
        for tell in list(self.on_change):
            tell(event)

    def beginning(self) -> bytes:
        """The first events."""
        events = [_event("start", {"id": self.id, "status": START})]
        events += [self._metric(name) for name in ("input_token_count", "seed") if name in self.metrics]
        return b"".join(events)

    def ending(self) -> bytes:
        """The last events."""
        known = self._metric("output_token_count") if "output_token_count" in self.metrics else b""
        return known + _event("completed", self.view())

    def _metric(self, name: str) -> bytes:
        return _event("metric", {"mode": "replace", "name": name, "value": self.metrics[name]})


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data))


def output_event(index: int, text: str) -> bytes:
    """The event of one chunk of text."""
    # Of the event that is sent for every token. Load clients read `chunk` as the first field.
    return b'event: output\ndata: {"chunk":%b,"index":%d}\n\n' % (orjson.dumps(text), index)


def _now() -> str:
    return datetime.now(UTC).isoformat()
