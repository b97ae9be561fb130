"""What the runner does: load an engine, keep Triton serving it, and stream predictions."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from cog import CancelationException

from runner.bridge.status import StatusPage
from runner.inputs import Defaults, prepare
from runner.lifeline import die_with_parent
from runner.text.stream import TextStream
from runner.text.tokenizer import Tokenizer
from runner.triton.client import TritonClient
from runner.triton.model_repository import BridgeParameters, write_model_repository
from runner.triton.server import TritonServer
from runner.weights import fetch_weights
from shared.cog.server import free_port
from shared.errors import EngineKindMismatch, WeightsNotSet
from shared.layout import PROJECT_ROOT, Layout
from shared.progress import stderr_progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from runner.cancellation import Cancellation
    from runner.inputs import Inputs
    from runner.settings import Settings
    from shared.artifact import EngineDirectory, Manifest

log = structlog.get_logger()


class Service:
    """One engine, served by one Triton."""

    def __init__(self, settings: Settings) -> None:
        """Fetch the engine, start Triton, and wait until it can generate. Raises E4xxx and E2102."""
        self._settings = settings
        layout = Layout.current()
        engine = load_engine(settings, layout.available_engines())
        kind = engine_kind(engine.manifest)
        self._tokenizer = Tokenizer.load(engine.tokenizer_files)
        self._defaults = Defaults.of(settings, engine.config.get("instantiate") or {}, self._tokenizer)
        self._request_ids = itertools.count(1)

        self._run_dir = Path(tempfile.mkdtemp(prefix="cog-triton-"))
        self._page = StatusPage.create(self._run_dir / "status")
        write_model_repository(
            self._run_dir / "models",
            BridgeParameters(
                engine_python=layout.engine_python(kind),
                engine_kind=kind,
                engine_dir=engine.path,
                engine_path=PROJECT_ROOT,
                start_timeout_seconds=settings.engine_start_timeout,
                status_path=self._run_dir / "status",
                owner_pid=os.getpid(),
            ),
        )
        port = free_port()
        self._client = TritonClient(port, self._page, settings.response_timeout)
        self._triton = TritonServer(layout, self._run_dir / "models", port, self._page)
        # From here on nothing may be left behind, however this process ends.
        atexit.register(self.close)
        die_with_parent(self.close)
        started = time.monotonic()
        self._triton.wait_ready(self._client.is_ready, settings.engine_start_timeout)
        log.info("engine ready", engine=kind, seconds=round(time.monotonic() - started, 3))

    def is_healthy(self) -> bool:
        """Whether Triton runs, has loaded the engine, and answers."""
        return self._triton.is_running() and self._client.is_ready()

    def stream(
        self, inputs: Inputs, record_metric: Callable[[str, object], None], cancellation: Cancellation
    ) -> Iterator[str]:
        """Yield the text of a prediction as it comes, cut at the first stop sequence.

        Raises E1xxx for its inputs, E2xxx when the engine fails, and Cog's CancelationException.
        """
        started = time.monotonic()
        prepared = prepare(inputs, self._defaults, self._tokenizer, next(self._request_ids))
        record_metric("input_token_count", len(prepared.request.input_token_ids))
        text = TextStream(self._tokenizer, prepared.stop_sequences)
        first_token: float | None = None
        tokens = self._client.generate(prepared.request)
        try:
            cancellation.on_cancel(tokens.cancel)
            for some in tokens:
                if first_token is None:
                    first_token = time.monotonic()
                if chunk := text.push(some):
                    yield chunk
                if text.stopped:
                    break
            if cancellation.cancelled:
                raise CancelationException
            if rest := text.finish():
                yield rest
        finally:
            tokens.close()
            record_metric("output_token_count", text.token_count)
        if inputs.log_performance_metrics or self._settings.log_performance_metrics:
            _log_performance(started, first_token, text.token_count)

    def close(self) -> None:
        """End Triton and remove the run directory. May be called twice."""
        self._client.close()  # first: Triton waits for open connections
        self._triton.stop()
        shutil.rmtree(self._run_dir, ignore_errors=True)


def engine_kind(manifest: Manifest | None) -> str:
    """The kind of engine in an archive; those of the time before manifests hold TensorRT-LLM's."""
    return "tensorrt_llm" if manifest is None else manifest.engine


def load_engine(settings: Settings, available: list[str]) -> EngineDirectory:
    """The engine that the settings name, fetched and unpacked if need be.

    Raises E4202 when they name none, E4103 for a kind that is not in `available`, and what fetch_weights
    raises.
    """

    def check(manifest: Manifest | None) -> None:
        if (kind := engine_kind(manifest)) not in available:
            raise EngineKindMismatch(kind=kind, available=", ".join(available))

    source = settings.weights or settings.engine_dir
    if source is None:
        raise WeightsNotSet
    with stderr_progress().step("engine") as progress:
        engine = fetch_weights(
            str(source),
            settings.weights_cache,
            check=check,
            max_bytes=settings.max_engine_bytes,
            progress=progress,
        )
    if engine.manifest is None:
        log.warning("this engine has no manifest: whether it fits this image cannot be checked")
    return engine


def _log_performance(started: float, first_token: float | None, token_count: int) -> None:
    ended = time.monotonic()
    first = ended if first_token is None else first_token
    generating = ended - first
    log.info(
        "prediction",
        time_to_first_token=round(first - started, 4),
        request_latency=round(ended - started, 4),
        output_sequence_length=token_count,
        output_token_throughput_per_user=round((token_count - 1) / generating, 1) if generating > 0 else None,
    )
