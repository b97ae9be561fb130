"""The predictor's work under Cog's server: the same event loop as the front's, in a thread beside Cog's."""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from cog import CancelationException

from runner.cog.prediction import as_cog_tells
from runner.front.engine import LoadedEngine, connect_to, tell_supervisor
from runner.lifecycle.caller import start_supervisor
from runner.lifecycle.control import (
    CONTROL,
    Connection,
    Drain,
    Drained,
    EngineAddress,
    SetupFailed,
)
from runner.metrics import Metrics
from runner.prediction.admission import Admission
from shared.errors import CogTritonError, EngineNotReady, GenericError, WorkerDied, from_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.cog.prediction import Prediction
    from runner.prediction.generation import TextGeneration
    from runner.prediction.inputs import Inputs
    from runner.settings import Settings
    from runner.triton.client import EngineClient


class Worker:
    """One engine for the predictions of one Cog worker. Its methods are for Cog's threads."""

    def __init__(self, settings: Settings) -> None:
        """Return when the engine generates. Raises the coded error of a failed set-up."""
        self._settings = settings
        # By default the limit follows what Cog itself accepts.
        setting = "COG_MAX_CONCURRENCY" if settings.max_predictions is None else "MAX_PREDICTIONS"
        self._admission = Admission(settings.admitted, fix=f"raise {setting}")
        self._engine: LoadedEngine | None = None
        self._client: EngineClient | None = None
        self._metrics = Metrics(self._admission, lambda: self._client)
        self._loop = uvloop.new_event_loop()
        self._set_up: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="predictions", daemon=True).start()
        if (failed := self._set_up.get()) is not None:
            raise from_text(failed) or GenericError()

    def is_healthy(self) -> bool:
        """Whether the engine generates, and new predictions are accepted."""
        return self._engine is not None and self._engine.generates() and not self._admission.closed

    def stream(self, inputs: Inputs, prediction: Prediction) -> Iterator[str]:
        """Yield the text of a prediction as it comes, cut at the first stop sequence.

        Raises the errors of inputs (E1xxx) and of the engine (E2xxx) in the form that Cog reports, and Cog's
        CancelationException.
        """
        texts = _Texts()
        asyncio.run_coroutine_threadsafe(self._generate(inputs, prediction, texts), self._loop)
        prediction.cancellation.on_cancel(lambda: self._loop.call_soon_threadsafe(texts.cancel))

        try:
            for text in texts:
                while texts.facts:
                    prediction.record_metric(*texts.facts.popitem())
                yield text
        finally:
            self._loop.call_soon_threadsafe(texts.cancel)
            for name, value in {**texts.facts, **texts.results}.items():
                prediction.record_metric(name, value)
        if prediction.cancellation.cancelled:
            raise CancelationException

    async def _generate(self, inputs: Inputs, prediction: Prediction, texts: _Texts) -> None:
        generation: TextGeneration | None = None
        error: CogTritonError | None = None
        try:
            if self._engine is None:
                raise EngineNotReady
            self._engine.check()
            generation = await self._engine.predictor.start(inputs.ask(), prediction_id=prediction.id)
            texts.facts |= generation.facts()
            texts.follow(generation)
            async for piece in generation:
                if piece.text:
                    texts.put(piece.text)
        except CogTritonError as problem:
            error = problem
            texts.results["error_code"] = error.code
        finally:
            if generation is not None:
                texts.results |= generation.results()
                generation.close()
            texts.end(error)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._obey())
        # The process that started the engine has ended, or no longer wants this worker.
        os._exit(1)

    async def _obey(self) -> None:
        """Do what the supervisor says until it ends."""
        control = await _supervisor()
        loading = None
        async for message in control:
            match message:
                case EngineAddress():
                    loading = asyncio.create_task(self._load(control, message))
                case SetupFailed(error):
                    self._set_up.put(error)
                case Drain(seconds):
                    await self._admission.drain(seconds)
                    control.send(Drained())
        del loading
        self._set_up.put(str(WorkerDied()))

    async def _load(self, control: Connection, address: EngineAddress) -> None:
        async def connect() -> EngineClient:
            self._client = await connect_to(address, self._settings)
            return self._client

        async def load() -> None:
            self._engine = await LoadedEngine.load(
                Path(address.engine_dir), connect, self._admission, self._metrics, self._settings
            )

        self._set_up.put(await tell_supervisor(control, load()))


class _Texts:
    """From the event loop to the thread in which Cog iterates: all the text that waits, at a time."""

    def __init__(self) -> None:
        self.facts: dict[str, object] = {}
        """Metrics that are known when it begins, and that Cog has not been told yet."""
        self.results: dict[str, object] = {}
        """Those that are known at its end."""
        self._texts: queue.SimpleQueue[str | CogTritonError | None] = queue.SimpleQueue()
        self._generation: TextGeneration | None = None
        self._cancelled = False

    def put(self, text: str) -> None:
        self._texts.put(text)

    def end(self, error: CogTritonError | None) -> None:
        self._texts.put(error)

    def follow(self, generation: TextGeneration) -> None:
        """Cancel this one with `cancel`."""
        self._generation = generation
        if self._cancelled:
            generation.cancel()

    def cancel(self) -> None:
        """Stop the engine's work. In the event loop's thread."""
        self._cancelled = True
        if self._generation is not None:
            self._generation.cancel()

    def __iter__(self) -> Iterator[str]:
        while True:
            text = self._texts.get()
            # Each hand-over costs more than a token: take what has arrived in the meantime, too.
            while isinstance(text, str) and not self._texts.empty():
                following = self._texts.get()
                if not isinstance(following, str):
                    yield text
                    text = following
                    break
                text += following
            if isinstance(text, CogTritonError):
                raise as_cog_tells(text)
            if text is None:
                return
            yield text


async def _supervisor() -> Connection:
    """The supervisor above this process; without one, a new one below it that serves this process only."""
    if path := os.environ.get(CONTROL):
        return await Connection.connect(path)
    _, near = start_supervisor(os.environ)
    return Connection(*await asyncio.open_connection(sock=near))
