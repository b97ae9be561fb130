"""One prediction, while it runs and after."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from runner.front.events import event_json
from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


START = "processing"
SUCCEEDED = "succeeded"
FAILED = "failed"
CANCELED = "canceled"
_MAX_LOGS = 1 << 20  # characters that are kept


class Work(Protocol):
    """What a prediction follows to its end: text as it arrives, or one output when it exists."""

    @property
    def finish_reason(self) -> str | None:
        """`cancelled`, or another one, at the end."""

    def __aiter__(self) -> AsyncIterator[Chunk | Log]:
        """The text, and log messages beside it. Raises coded errors."""

    def told(self) -> dict[str, object]:
        """What is reported besides its text: how far along it is, and at the end an `output` that is not
        text.
        """

    def facts(self) -> dict[str, object]:
        """Metrics that are known when it begins."""

    def results(self) -> dict[str, object]:
        """Metrics that are known when it ends."""

    def cancel(self) -> None:
        """Make it end soon. May be called twice."""

    def close(self) -> None:
        """Finish with it. May be called twice."""


class Chunk(Protocol):
    """Some of a text."""

    @property
    def text(self) -> str:
        """The text."""


@dataclass(frozen=True, slots=True)
class Log:
    """A message beside the output, of any length."""

    said: str
    source: str = "stderr"


class Prediction:
    """What clients are told about one prediction: the same in answers, event streams and webhooks."""

    def __init__(self, prediction_id: str, inputs: dict[str, Any], owner: str = "") -> None:
        """`inputs`: as they may be shown, without secrets. `owner`: whose key began it, if one is needed; for
        others it does not exist.
        """
        self.id = prediction_id
        self.owner = owner
        self.inputs = inputs
        self.status = "starting"
        self.output: list[str] = []
        self.logs = ""
        """The last of what its work has logged."""
        self.log_length = 0
        """How many characters its work has logged."""
        self._told: dict[str, object] = {}
        self.error: CogTritonError | None = None
        self.metrics: dict[str, object] = {}
        self.created_at = _now()
        self.completed_at: str | None = None
        self.on_change: list[Callable[[str], object]] = []
        """Called with `start`, `output`, `logs` and `completed` when these happen."""
        self.on_cancel: Callable[[], object] | None = None
        """What stops it while it has no work yet."""
        self._work: Work | None = None
        self._facts: list[str] = []
        self._results: list[str] = []
        self._cancelled = False
        self._began = time.perf_counter()

    @property
    def ended(self) -> bool:
        """Whether nothing about it changes any more."""
        return self.completed_at is not None

    def view(self) -> dict[str, Any]:
        """The prediction as Cog shows it."""
        view: dict[str, Any] = {}
        if self.error is not None:
            view["error"] = str(self.error)
            view["error_code"] = self.error.code
        view |= {"id": self.id, "logs": self.logs, "metrics": self.metrics}
        if self.output or self.status == SUCCEEDED:
            view["output"] = self.output
        told = self._told if self._work is None else self._work.told()
        return view | told | {"status": self.status}

    def full_view(self) -> dict[str, Any]:
        """The same with what was asked, and when."""
        view = {**self.view(), "input": self.inputs, "created_at": self.created_at}
        if self.completed_at is not None:
            view["completed_at"] = self.completed_at
        return view

    def size(self) -> int:
        """The bytes that its texts need in memory."""
        inputs = (value if isinstance(value, str) else repr(value) for value in self.inputs.values())
        return sum(map(sys.getsizeof, (*inputs, *self.output, self.logs)))

    def cancel(self) -> None:
        """Stop it, or the engine's work on it. May be called twice, and after its end."""
        self._cancelled = True
        if self._work is not None:
            self._work.cancel()
        elif self.on_cancel is not None:
            self.on_cancel()

    async def run(
        self,
        work: Work | CogTritonError | None,
        send: Callable[[bytes], Awaitable[None]] | None = None,
    ) -> None:
        """Follow the text to its end; `send` gets each event. Errors of the text are not raised.

        Without work it was cancelled before there was any.
        """
        self._begin(work)
        if send is not None:
            await send(self.beginning())
        try:
            if isinstance(work, CogTritonError):
                raise work
            if work is None:
                self._end(CANCELED)
            else:
                await self._follow(work, send)
        except CogTritonError as error:
            self._end(FAILED, error)
            error.__traceback__ = None  # it refers to what refers to the error: only a collection frees that
        except BaseException:
            self._end(CANCELED)
            raise
        finally:
            if work is not None and not isinstance(work, CogTritonError):
                work.close()
        if send is not None:
            await send(self.ending())

    async def _follow(self, work: Work, send: Callable[[bytes], Awaitable[None]] | None) -> None:
        output, on_change = self.output, self.on_change
        async for piece in work:
            if isinstance(piece, Log):
                await self._say(piece, send)
                continue
            text = piece.text
            if send is not None:
                await send(output_event(len(output), text))
            output.append(text)
            for tell in on_change:
                tell("output")
        self._end(CANCELED if work.finish_reason == "cancelled" else SUCCEEDED)

    async def _say(self, log: Log, send: Callable[[bytes], Awaitable[None]] | None) -> None:
        self.logs = (self.logs + log.said)[-_MAX_LOGS:]
        self.log_length += len(log.said)
        self._tell("logs")
        if send is not None:
            await send(log_event(log.said, log.source))

    def _begin(self, work: Work | CogTritonError | None) -> None:
        self.status = START
        self.on_cancel = None
        if work is not None and not isinstance(work, CogTritonError):
            self._work = work
            facts = work.facts()
            self._facts = list(facts)
            self.metrics |= facts
            if self._cancelled:
                work.cancel()
        self._tell("start")

    def _end(self, status: str, error: CogTritonError | None = None) -> None:
        self.status, self.error = status, error
        self.completed_at = _now()
        if self._work is not None:
            results = self._work.results()
            self._results = list(results)
            self.metrics |= results
            self._told = self._work.told()
            self._work = None
        self.metrics["predict_time"] = round(time.perf_counter() - self._began, 6)
        self.metrics = dict(sorted(self.metrics.items()))
        self._tell("completed")

    def _tell(self, event: str) -> None:
        for tell in list(self.on_change):
            tell(event)

    def beginning(self) -> bytes:
        """The first events."""
        events = [_event("start", {"id": self.id, "status": START})]
        return b"".join([*events, *map(self._metric, self._facts)])

    def ending(self) -> bytes:
        """The last events."""
        return b"".join([*map(self._metric, self._results), _event("completed", self.view())])

    def _metric(self, name: str) -> bytes:
        return _event("metric", {"mode": "replace", "name": name, "value": self.metrics[name]})


def _event(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), event_json(data))


def log_event(said: str, source: str = "stderr") -> bytes:
    """The event of a log message."""
    return _event("log", {"data": said, "source": source})


def output_event(index: int, text: str) -> bytes:
    """The event of one chunk of text."""
    # For the event that is sent with every token. Load clients read `chunk` as the first field.
    return b'event: output\ndata: {"chunk":%b,"index":%d}\n\n' % (event_json(text), index)


def _now() -> str:
    return datetime.now(UTC).isoformat()
