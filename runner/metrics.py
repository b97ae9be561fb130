"""Prometheus metrics: ours, and those of Triton passed through."""

from __future__ import annotations

import socket
from collections import Counter as Counts
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING
from weakref import WeakSet

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from runner.protocol.engine import Statistics
from shared.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from runner.prediction.admission import Admission
    from runner.triton.client import EngineClient
    from shared.errors import CogTritonError

    Engine = Callable[[], EngineClient | None]

log = get_logger()

_TRITON_SECONDS = 2
_OUTCOMES = ("succeeded", "cancelled", "failed", "refused")
_LATENCIES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)


class Metrics:
    """What a runner counts. Threads may share it."""

    def __init__(self, admission: Admission, engine: Engine) -> None:
        """`engine`: the way to it, once there is one."""
        self.registry = CollectorRegistry()
        self._triton: str | None = None
        self.tokens = 0
        """Tokens that were generated, including those of running predictions. For one thread."""
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "From a prediction's arrival to its first token"
        )
        self._inter_token = self._histogram(
            "inter_token_latency_seconds", "Mean time between two tokens of a prediction"
        )
        self._queue = self._histogram(
            "queue_time_seconds", "From a prediction's arrival until it is handed to Triton"
        )
        self._duration = self._histogram("request_duration_seconds", "From a prediction's arrival to its end")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts")
        self._predictions = self._counter("predictions", "Predictions that ended", "outcome")
        for outcome in _OUTCOMES:  # if a series began at its first event, rate() would miss that event
            self._predictions.labels(outcome)
        text = "Errors of predictions, and of requests that were refused before there was one, by code"
        self._errors = self._counter("errors", text, "code")
        self._of_predictions: WeakSet[CogTritonError] = WeakSet()
        self.gauge("running", "Predictions that run or wait", lambda: admission.count)
        self.gauge("running_limit", "Predictions that may run or wait", lambda: admission.limit)
        self.registry.register(_Tokens(self))
        self.registry.register(_Engine(engine))

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Make `cog_triton_NAME` report a current value."""
        Gauge(f"cog_triton_{name}", text, registry=self.registry).set_function(value)

    def constant(self, name: str, text: str, value: int) -> None:
        """Make `cog_triton_NAME_total` report what was counted before this process began."""
        Counter(f"cog_triton_{name}", text, registry=self.registry).inc(value)

    def sent(self, queued: float, prompt_tokens: int) -> None:
        """A prediction was handed to Triton, `queued` seconds after its arrival."""
        self._queue.observe(queued)
        self._prompt_tokens.inc(prompt_tokens)

    def generated(self, tokens: int, first: float | None, duration: float) -> None:
        """A prediction ended; its `first` token and its end came that many seconds after its arrival."""
        self._duration.observe(duration)
        if first is not None:
            self._first_token.observe(first)
            if tokens > 1:
                self._inter_token.observe((duration - first) / (tokens - 1))

    def ended(self, outcome: str, error: CogTritonError | None = None) -> None:
        """A prediction ended. `outcome`: succeeded, cancelled, failed or refused; `error`: with this one."""
        self._predictions.labels(outcome).inc()
        if error is not None:
            self._of_predictions.add(error)
            self._errors.labels(error.code).inc()

    def answered(self, error: CogTritonError) -> None:
        """A request was answered with this error; one that its prediction ended with is counted already."""
        if error not in self._of_predictions:
            self._errors.labels(error.code).inc()

    def errors(self) -> Counts[str]:
        """How many there were so far, by code."""
        samples = [sample for metric in self._errors.collect() for sample in metric.samples]
        return Counts({it.labels["code"]: int(it.value) for it in samples if it.name.endswith("_total")})

    def exposition(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self.registry) + self._of_triton()

    def add_triton(self, path: str) -> None:
        """Pass on what Triton reports at this Unix socket, as it writes it."""
        self._triton = path

    def _of_triton(self) -> bytes:
        """Nothing while it does not answer."""
        if self._triton is None:
            return b""
        connection = _UnixConnection(self._triton)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read()
        except (OSError, HTTPException) as error:
            log.warning("Triton's metrics are missing", error=str(error))
            return b""
        finally:
            connection.close()

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"cog_triton_{name}", text, registry=self.registry, buckets=_LATENCIES)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cog_triton_{name}", text, labels, registry=self.registry)


class _UnixConnection(HTTPConnection):
    """HTTP with the server at a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("triton", timeout=_TRITON_SECONDS)
        self._path = path

    def connect(self) -> None:
        """As in the base class."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TRITON_SECONDS)
        self.sock.connect(self._path)


class _Tokens(Collector):
    """A counter of prometheus_client costs more than a token's whole path may."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        text = "Tokens that were generated"
        yield CounterMetricFamily("cog_triton_generated_tokens", text, self._metrics.tokens)


class _Engine(Collector):
    """What the engine reports about itself, once a second; 0 without an engine process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        client = self._engine()
        restarts = 0 if client is None else client.restarts
        yield CounterMetricFamily("cog_triton_engine_restarts", "Restarts of the engine process", restarts)
        statistics = Statistics() if client is None else client.statistics
        gauges: dict[str, tuple[str, float]] = {
            "active_requests": ("Requests in the engine's steps", statistics.active_requests),
            "queued_requests": ("Requests that wait in the engine", statistics.queued_requests),
        }
        if statistics.kv_cache_blocks:
            gauges |= {
                "kv_cache_blocks": ("Blocks of the KV cache", statistics.kv_cache_blocks),
                "kv_cache_blocks_used": ("Blocks of the KV cache in use", statistics.kv_cache_blocks_used),
                "kv_cache_usage": (
                    "Share of the KV cache in use, from 0 to 1",
                    statistics.kv_cache_blocks_used / statistics.kv_cache_blocks,
                ),
            }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"cog_triton_engine_{name}", text, value)
