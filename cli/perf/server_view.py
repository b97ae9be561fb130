"""What the server itself reports at /metrics for the time of a load, to compare with what the client saw."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from cli.perf.http import client

_SECONDS = 5.0
_NEED_KEY = (401, 403)
# By our name of a metric, the names that servers use: ours, vLLM's, Triton's. Triton's counters have no
# _total: the parser adds it.
_HISTOGRAMS = {
    "time_to_first_token": ("cog_triton_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
    "inter_token_latency": (
        "cog_triton_inter_token_latency_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:time_per_output_token_seconds",
    ),
    "request_latency": ("cog_triton_request_duration_seconds", "vllm:e2e_request_latency_seconds"),
    "queue_time": ("cog_triton_queue_time_seconds", "vllm:request_queue_time_seconds"),
}
_COUNTERS = {
    "output_tokens": ("cog_triton_generated_tokens_total", "vllm:generation_tokens_total"),
    "prompt_tokens": ("cog_triton_prompt_tokens_total", "vllm:prompt_tokens_total"),
    "requests": (
        "cog_triton_predictions_total",
        "vllm:request_success_total",
        "nv_inference_request_success_total",
    ),
    "errors": ("cog_triton_errors_total", "nv_inference_request_failure_total"),
    "engine_restarts": ("cog_triton_engine_restarts_total",),
}
_GAUGES = {
    "waiting": ("cog_triton_engine_queued_requests", "vllm:num_requests_waiting"),
    "running": ("cog_triton_engine_active_requests", "vllm:num_requests_running"),
}


class ServerView:
    """Reads the metrics before, during and after a step. A server without them reports nothing, which is not
    a failure.
    """

    def __init__(self, url: str, triton_model: str | None = None, key: dict[str, str] | None = None) -> None:
        """`triton_model`: only this one's counters are read, and not those of its parts.

        `key`: the header that has it.
        """
        self._url = url
        self._triton_model = triton_model
        self._client = client(_SECONDS)
        self._key = key
        self._status: int | None = None  # of the last answer
        self._before: dict[str, Any] | None = None
        self._most: dict[str, float] = {}

    async def why_absent(self) -> str | None:
        """Why it reports nothing; None if it reports anything."""
        if await self._read():
            return None
        if self._status in _NEED_KEY:
            reason = "the key is not accepted there" if self._key else "it needs a key"
            return f"{reason} (HTTP {self._status})"
        return "no metrics are there"

    async def begin(self) -> None:
        """Before a step."""
        self._before, self._most = await self._read(), {}

    async def watch(self, every: float = 2.0) -> None:
        """During a step: how many requests wait."""
        while self._before is not None:
            await asyncio.sleep(every)
            now = await self._read()
            for name, names in _GAUGES.items():
                value = _first(now or {}, names)
                if value is not None:
                    self._most[name] = max(self._most.get(name, 0.0), sum(value.values()))

    async def end(self) -> dict[str, Any] | None:
        """After it: what was added in between; times in ms."""
        before, after = self._before, await self._read()
        if before is None or after is None:
            return None
        view: dict[str, Any] = {f"most_{name}": value for name, value in self._most.items()}
        for name, names in _HISTOGRAMS.items():
            found = _histogram(before, after, names)
            if found is not None:
                view[name] = found
        for name, names in _COUNTERS.items():
            value = _first(after, names)
            if value is not None:
                earlier = _first(before, names) or {}
                view[name] = sum(value.values()) - sum(earlier.values())
        return view or None

    async def _read(self) -> dict[str, Any] | None:
        """Values by name and labels."""
        return await asyncio.to_thread(self._fetch)

    def _fetch(self) -> dict[str, Any] | None:
        try:
            answer = self._client.get(self._url, headers=self._key)
            self._status = answer.status_code
            families = (
                list(text_string_to_metric_families(answer.text)) if answer.status_code == 200 else None
            )
        except (httpx2.HTTPError, ValueError):
            return None
        if families is None:
            return None
        values: dict[str, dict[Any, float]] = {}
        for family in families:
            for sample in family.samples:
                if (
                    self._triton_model
                    and sample.labels.get("model", self._triton_model) != self._triton_model
                ):
                    continue
                values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return values


def _first(values: dict[str, Any], names: tuple[str, ...]) -> dict[Any, float] | None:
    for name in names:
        if name in values:
            found: dict[Any, float] = values[name]
            return found
    return None


def _histogram(
    before: dict[str, Any], after: dict[str, Any], names: tuple[str, ...]
) -> dict[str, float] | None:
    """Count, mean and percentiles between two readings, linear within a bucket, as Prometheus has it."""
    for name in names:
        buckets = _by_limit(after.get(f"{name}_bucket"))
        if not buckets:
            continue
        earlier = _by_limit(before.get(f"{name}_bucket"))
        ordered = sorted((limit, value - earlier.get(limit, 0.0)) for limit, value in buckets.items())
        total = ordered[-1][1]
        if not total:
            return None
        seconds = sum(after[f"{name}_sum"].values()) - sum(before.get(f"{name}_sum", {}).values())
        quantiles = {f"p{share}": _quantile(ordered, share / 100) * 1000 for share in (50, 90, 99)}
        return {"count": total, "avg": seconds / total * 1000, **quantiles}
    return None


def _by_limit(samples: dict[Any, float] | None) -> dict[float, float]:
    """Over all labels but the limit."""
    found: dict[float, float] = {}
    for labels, value in (samples or {}).items():
        limit = float(dict(labels)["le"])
        found[limit] = found.get(limit, 0.0) + value
    return found


def _quantile(cumulative: list[tuple[float, float]], share: float) -> float:
    wanted = cumulative[-1][1] * share
    for (low, below), (high, upto) in pairwise([(0.0, 0.0), *cumulative]):
        if upto >= wanted and upto > below:
            return low if high == float("inf") else low + (high - low) * (wanted - below) / (upto - below)
    return cumulative[-1][0]
