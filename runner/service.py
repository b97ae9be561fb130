"""What the runner does: load an engine, keep Triton serving it, and stream predictions."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from cog import CancelationException

from runner.cog.admission import Admission
from runner.engines.catalogue import ENGINES
from runner.engines.tensorrt_llm.settings import SERVER_ARGUMENTS
from runner.lifecycle.machine import check_machine
from runner.lifecycle.probe import Probe
from runner.prediction.inputs import Defaults
from runner.prediction.limits import limits_of, lowered
from runner.prediction.preparation import Preparation
from runner.protocol.engine import FinishReason, Request, SamplingParameters
from runner.protocol.status import StatusPage
from runner.text.chat import ChatTemplate
from runner.text.stream import TextStream
from runner.text.tokenizer import Tokenizer
from runner.triton.model_repository import BridgeParameters, write_model_repository
from runner.triton.server import TritonServer
from runner.triton.thread_client import TritonClient
from runner.weights import fetch_weights
from shared.cog.server import free_port, refuse_used_port
from shared.errors import (
    ChatTemplateMissing,
    CogTritonError,
    EngineKindMismatch,
    FixedBy,
    GenericError,
    SettingInvalid,
    ShuttingDown,
    WeightsNotSet,
)
from shared.layout import PROJECT_ROOT, Layout
from shared.progress import stderr_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.cog.cancellation import Cancellation
    from runner.cog.prediction import Prediction
    from runner.lifecycle.lifeline import Lifeline
    from runner.metrics import Metrics
    from runner.prediction.ask import Ask
    from runner.prediction.inputs import Inputs
    from runner.prediction.preparation import Prepared
    from runner.settings import Settings
    from shared.artifact import EngineDirectory, Manifest

log = structlog.get_logger()


class Service:
    """One engine, served by one Triton."""

    def __init__(self, settings: Settings, lifeline: Lifeline) -> None:
        """Fetch the engine, start Triton, and wait until it can generate. Raises E4xxx and E2102."""
        self._settings = settings
        layout = Layout.current()
        engine = load_engine(settings, layout.available_engines())
        kind = engine_kind(engine.manifest)
        _check_ranks(settings, engine)
        instantiate = settings.instantiate(engine.config)
        tokenizer = Tokenizer.load(engine.tokenizer_files)
        self._preparation = Preparation(
            tokenizer,
            Defaults.of(settings, instantiate, tokenizer, random_seed=ENGINES[kind].seeds),
            lowered(
                limits_of(kind, engine, settings.server_arguments(engine.config)),
                settings.max_sequence_length,
            ),
        )
        self._chat_template = ChatTemplate.load(engine.tokenizer_files)
        self._request_ids = itertools.count(1)
        self._admission = Admission(settings.admitted)

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
        self._probe_client = TritonClient(port, self._page, settings.probe_timeout)
        self._probe = Probe(self._generate_one, lambda: self._client.response_count)
        metrics_port = None
        self._metrics: Metrics | None = None
        if settings.metrics_port is not None:
            metrics_port = free_port()
            self._metrics = self._serve_metrics(settings.metrics_port, metrics_port)
        self._triton = TritonServer(
            layout,
            self._run_dir / "models",
            port,
            self._page,
            metrics_port=metrics_port,
            http_address=settings.triton_http_address,
            environment={SERVER_ARGUMENTS: json.dumps(settings.server_arguments(engine.config))},
        )
        # From here on nothing may be left behind, however this process ends.
        atexit.register(self.close)
        lifeline.before = self.close
        started = time.monotonic()
        self._triton.wait_ready(self._client.is_ready, settings.engine_start_timeout)
        try:
            self._generate_one()
        except CogTritonError:
            self.close()
            raise
        self._probe.start()
        log.info("engine ready", engine=kind, seconds=round(time.monotonic() - started, 3))

    def is_healthy(self) -> bool:
        """Whether Triton runs and answers, the engine generates, and new predictions are let in."""
        return (
            not self._admission.closed
            and self._probe.is_alive
            and self._triton.is_running()
            and self._client.is_ready()
        )

    def stream(self, inputs: Inputs, prediction: Prediction) -> Iterator[str]:
        """Yield the text of a prediction as it comes, cut at the first stop sequence.

        Raises E1xxx for its inputs, E2xxx when the engine fails, and Cog's CancelationException.
        """
        bound = log.bind(prediction_id=prediction.id)
        outcome, code = "cancelled", None  # unless it ends in another way
        try:
            with self._admission.enter() as ticket:
                ask = inputs.ask()
                prompt = self._prompt(ask)
                tokens = self._preparation.tokens(prompt, templated=ask.messages is not None)
                prepared = self._preparation.request(ask, tokens, next(self._request_ids))
                if self._settings.log_prompts:
                    bound.info("prompt", prompt=prompt)
                yield from self._generate(prepared, prediction, ticket, log_performance=ask.log_performance)
            outcome = "succeeded"
        except CogTritonError as error:
            outcome, code = "failed", error.code
            # The error of a user may quote what was sent.
            text = error.code if error.fixed_by is FixedBy.USER else str(error)
            bound.info("prediction failed", error=text)
            raise
        except Exception:
            outcome, code = "failed", GenericError.code
            bound.exception("prediction failed")
            raise GenericError from None
        finally:
            if self._metrics is not None:
                self._metrics.ended(outcome, code)

    def _prompt(self, ask: Ask) -> str:
        if ask.messages is None:
            return self._preparation.prompt(ask)
        if self._chat_template is None:
            raise ChatTemplateMissing
        return self._chat_template.render(self._preparation.conversation(ask))

    def _generate(
        self, prepared: Prepared, prediction: Prediction, ticket: Cancellation, *, log_performance: bool
    ) -> Iterator[str]:
        request = prepared.request
        prediction.record_metric("input_token_count", len(request.input_token_ids))
        if request.sampling.seed is not None:
            prediction.record_metric("seed", request.sampling.seed)
        text = TextStream(self._preparation.tokenizer, prepared.stop_sequences)
        first_token: float | None = None
        if self._metrics is not None:
            queued = time.monotonic() - prediction.received_at
            self._metrics.sent(queued, len(request.input_token_ids))
        tokens = self._client.generate(request)
        try:
            prediction.cancellation.on_cancel(tokens.cancel)
            ticket.on_cancel(tokens.cancel)
            for some in tokens:
                if first_token is None:
                    first_token = time.monotonic()
                if chunk := text.push(some):
                    yield chunk
                if text.stopped:
                    break
            if prediction.cancellation.cancelled:
                raise CancelationException
            if ticket.cancelled and tokens.finish_reason is FinishReason.NOT_FINISHED and not text.stopped:
                raise ShuttingDown
            if rest := text.finish():
                yield rest
        finally:
            tokens.close()
            prediction.record_metric("output_token_count", text.token_count)
            if self._metrics is not None:
                first = None if first_token is None else first_token - prediction.received_at
                duration = time.monotonic() - prediction.received_at
                self._metrics.generated(text.token_count, first, duration)
        if log_performance or self._settings.log_performance_metrics:
            _log_performance(prediction, first_token, text.token_count)

    def _serve_metrics(self, port: int, triton_port: int) -> Metrics:
        """Raises E4003 when the port is taken."""
        from runner.metrics import Metrics

        refuse_used_port(port)
        metrics = Metrics(lambda: self._admission.count, self._page)
        metrics.serve(port, triton_port)
        return metrics

    def _generate_one(self) -> None:
        """Get one token, whatever it is. Raises E2xxx when none comes in time."""
        request = Request(
            request_id=next(self._request_ids),
            input_token_ids=self._preparation.tokenizer.encode("a") or [0],
            max_tokens=1,
            sampling=SamplingParameters(top_k=1),
        )
        tokens = self._probe_client.generate(request)
        try:
            for _ in tokens:
                pass
        finally:
            tokens.close()

    def drain(self, grace: float) -> None:
        """Refuse new predictions; return when the others have ended, or after `grace` seconds."""
        self._admission.drain(grace)

    def close(self) -> None:
        """End Triton and remove the run directory. May be called twice."""
        self._probe.stop()
        self._probe_client.close()
        self._client.close()  # first: Triton waits for open connections
        self._triton.stop()
        shutil.rmtree(self._run_dir, ignore_errors=True)


def engine_kind(manifest: Manifest | None) -> str:
    """The kind of engine in an archive; those of the time before manifests hold TensorRT-LLM's."""
    return "tensorrt_llm" if manifest is None else manifest.engine


def load_engine(settings: Settings, available: list[str]) -> EngineDirectory:
    """The engine that the settings name, fetched and unpacked if need be.

    Raises E4202 when they name none, E4103 for a kind that is not in `available`, E4010 to E4015 for a
    machine that cannot run it, and what fetch_weights raises.
    """

    def check(manifest: Manifest | None) -> None:
        if (kind := engine_kind(manifest)) not in available:
            raise EngineKindMismatch(kind=kind, available=", ".join(available))
        check_machine(kind, manifest, settings.image_sm)

    source = settings.weights or settings.instantiate({}).get("weights") or settings.engine_dir
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


def _check_ranks(settings: Settings, engine: EngineDirectory) -> None:
    """Raise E4002 when WORLD_SIZE is not what the engine needs."""
    ranks = None if engine.manifest is None else engine.manifest.ranks
    if settings.world_size is not None and ranks is not None and settings.world_size != ranks:
        reason = f"the engine is served by {ranks} processes"
        raise SettingInvalid(setting="WORLD_SIZE", value=settings.world_size, reason=reason)


def _log_performance(prediction: Prediction, first_token: float | None, token_count: int) -> None:
    ended = time.monotonic()
    first = ended if first_token is None else first_token
    generating = ended - first
    log.info(
        "prediction",
        prediction_id=prediction.id,
        time_to_first_token=round(first - prediction.received_at, 4),
        request_latency=round(ended - prediction.received_at, 4),
        output_sequence_length=token_count,
        output_token_throughput_per_user=round((token_count - 1) / generating, 1) if generating > 0 else None,
    )
