"""What the server itself reports at /metrics for the time of a load, to compare with what the client saw."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from math import inf, isfinite
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cli.perf.http import get

_SECONDS = 5.0
_MAX_LINE = 1 << 14  # the time that the parser takes for a line grows with the square of its length
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
# What only grows, as long as the server is the same.
_GROWING = [
    *(name for names in _COUNTERS.values() for name in names),
    *(f"{name}_bucket" for names in _HISTOGRAMS.values() for name in names),
]

Values = dict[str, dict[Any, float]]
"""By name and labels."""


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
        self._key = key or {}
        self._status: int | None = None  # of the last answer
        self._before: Values | None = None
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
                if value is not None and isfinite(most := sum(value.values())):
                    self._most[name] = max(self._most.get(name, 0.0), most)

    async def end(self) -> dict[str, Any] | None:
        """After it: what was added in between; times in ms."""
        before, after = self._before, await self._read()
        if before is None or after is None:
            return None
        view: dict[str, Any] = {f"most_{name}": value for name, value in self._most.items()}
        added = _added(before, after)
        if any(value < 0 for name in _GROWING for value in added.get(name, {}).values()):
            return view or None  # the server was started again: what it counts now is not what was added
        for name, names in _HISTOGRAMS.items():
            found = _histogram(added, names)
            if found is not None:
                view[name] = found
        for name, names in _COUNTERS.items():
            value = _first(added, names)
            if value is not None and isfinite(total := sum(value.values())):
                view[name] = total
        return view or None

    async def _read(self) -> Values | None:
        try:
            self._status, content = await get(self._url, self._key, _SECONDS)
        except OSError:
            return None
        return await asyncio.to_thread(self._values, content) if self._status == 200 else None

    def _values(self, content: bytes) -> Values | None:
        if max(map(len, content.split(b"\n"))) > _MAX_LINE:
            return None
        values: Values = {}
        try:
            for family in text_string_to_metric_families(content.decode(errors="replace")):
                for sample in family.samples:
                    is_wanted = self._triton_model in (None, sample.labels.get("model", self._triton_model))
                    if is_wanted and isfinite(sample.value):
                        labels = tuple(sorted(sample.labels.items()))
                        values.setdefault(sample.name, {})[labels] = float(sample.value)
        except Exception:  # the parser also raises IndexError and others for what is no metric
            return None
        return values


def _added(before: Values, after: Values) -> Values:
    """What came to each value; all of it to one that is new."""
    nothing: dict[Any, float] = {}
    return {
        name: {
            labels: after.get(name, nothing).get(labels, 0.0) - before.get(name, nothing).get(labels, 0.0)
            for labels in before.get(name, nothing) | after.get(name, nothing)
        }
        for name in before | after
    }


def _first(values: Values, names: tuple[str, ...]) -> dict[Any, float] | None:
    return next((values[name] for name in names if name in values), None)


def _histogram(added: Values, names: tuple[str, ...]) -> dict[str, float] | None:
    """Count, mean and percentiles between two readings, linear within a bucket, as Prometheus has it."""
    for name in names:
        buckets = _by_limit(added.get(f"{name}_bucket"))
        if not buckets:
            continue
        total = buckets[-1][1]
        if not total or f"{name}_sum" not in added:
            return None
        found = {
            "count": total,
            "avg": sum(added[f"{name}_sum"].values()) / total * 1000,
            **{f"p{share}": _quantile(buckets, share / 100) * 1000 for share in (50, 90, 99)},
        }
        return found if all(0 <= value < inf for value in found.values()) else None
    return None


def _by_limit(samples: dict[Any, float] | None) -> list[tuple[float, float]]:
    """In ascending order, over all labels but the limit; empty if they are not those of a histogram."""
    found: dict[float, float] = {}
    for labels, value in (samples or {}).items():
        try:
            limit = float(dict(labels)["le"])
        except (KeyError, ValueError):
            return []
        if not limit >= 0:  # NaN is not, either: these are times
            return []
        found[limit] = found.get(limit, 0.0) + value
    ordered = sorted(found.items())
    is_cumulative = all(below <= upto for (_, below), (_, upto) in pairwise(ordered))
    return ordered if is_cumulative else []


def _quantile(cumulative: list[tuple[float, float]], share: float) -> float:
    wanted = cumulative[-1][1] * share
    for (low, below), (high, upto) in pairwise([(0.0, 0.0), *cumulative]):
        if upto >= wanted and upto > below:
            return low if high == float("inf") else low + (high - low) * (wanted - below) / (upto - below)
    return cumulative[-1][0]
