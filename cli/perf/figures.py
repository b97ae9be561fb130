"""The figures of a step, in the field's names; times in milliseconds.

time_to_first_token, inter_token_latency (the mean of a request), request_latency, output_token_throughput and
request_throughput are aiperf's, except that times begin when a request was to be sent.
"""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cli.perf.load import Load
    from cli.perf.plan import Objectives
    from cli.perf.request import Request

MAX_FAILURES = 0.01
"""Of the requests: with more, a server does not hold a load."""
LATENCIES = ("time_to_first_token", "inter_token_latency", "request_latency")
_LAG_LIMIT_MS = 10.0
_CPU_LIMIT = 0.9
_WORDS = 10_000  # of the mock's text, which is numbers


def distribution(values: Iterable[float | None], scale: float = 1000) -> dict[str, Any] | None:
    """Mean, deviation, extremes and percentiles (linear between ranks, as numpy's); None without values."""
    found = sorted(value * scale for value in values if value is not None)
    if not found:
        return None
    cuts = _percentiles(found)
    return {
        "avg": statistics.fmean(found),
        "std": statistics.pstdev(found),
        "min": found[0],
        "max": found[-1],
        "p50": cuts[50],
        "p90": cuts[90],
        "p99": cuts[99],
        "count": len(found),
        "percentiles": cuts,
    }


def _percentiles(ordered: Sequence[float]) -> list[float]:
    """p0 to p100."""
    if len(ordered) == 1:
        return [ordered[0]] * 101
    inner = statistics.quantiles(ordered, n=100, method="inclusive")
    return [ordered[0], *inner, ordered[-1]]


def count_text(request: Request, tokens: int) -> None:
    """Compare the mock's text, `0 1 2 ...`, with what it must be; then forget the text."""
    words = "".join(request.pieces).split()
    wanted = [str(number % _WORDS) for number in range(tokens)]
    if words != wanted:
        found, due = Counter(words), Counter(wanted)
        request.lost = (due - found).total()
        request.wrong = (found - due).total() or int(not request.lost)


def is_held(requests: Mapping[str, int]) -> bool:
    """Whether a server holds a load with these counts of requests, `figures()["requests"]`."""
    return requests["succeeded"] > 0 and requests["failed"] <= MAX_FAILURES * requests["sent"]


def figures(load: Load, *, asked_tokens: int, predictable: bool, objectives: Objectives) -> dict[str, Any]:
    """All that is known of a step."""
    requests = load.requests
    good = [request for request in requests if request.is_good]
    start, stop = window(load)
    seconds = max(stop - start, 1e-9)
    ended = [request for request in good if request.ended <= stop]
    step = load.step
    return {
        "load": step.label,
        "concurrency": step.concurrency,
        "rate": step.rate,
        "batch": step.batch,
        "seconds": seconds,
        "requests": {
            "expected": step.expected,
            "sent": len(requests),
            "succeeded": len(good),
            "failed": sum(request.failure is not None for request in requests),
            "unfinished": sum(request.unfinished for request in requests),
        },
        "failures": _failures(requests),
        "tokens": {
            "expected": asked_tokens * len(good),
            "actual": sum(request.token_count for request in good),
            "prompt": sum(request.prompt_tokens or 0 for request in good),
            "counted_by": "server" if any(request.tokens is not None for request in good) else "events",
            "lost": sum(request.lost for request in good) if predictable else None,
            "wrong": sum(request.wrong for request in good) if predictable else None,
        },
        "output_token_throughput": tokens_until(requests, stop) / seconds,
        "request_throughput": len(ended) / seconds,
        "goodput": (
            sum(is_good(request, objectives) for request in ended) / seconds if objectives.limits else None
        ),
        "output_token_throughput_per_user": distribution(
            (1 / latency for request in good if (latency := request.inter_token_latency)), scale=1
        ),
        **{name: distribution(getattr(request, name) for request in good) for name in LATENCIES},
        "longest_pause": distribution(
            request.longest_pause for request in requests if len(request.events) > 1
        ),
        "in_flight": _in_flight(requests, start, stop),
        "timeline": _timeline(requests, start, load.ended),
        "client": client(load),
    }


def window(load: Load) -> tuple[float, float]:
    """The time over which throughput is measured: from the first request to the end of the step.

    It ends with the last request when a number of requests ended the step, or none ended in that time.
    """
    requests, step = load.requests, load.step
    if not requests:
        return load.begun, load.ended
    start = min(request.intended for request in requests)
    last = max(request.ended for request in requests)
    due = load.begun + step.seconds
    reached = step.batch is None and any(request.ended <= due for request in requests)
    by_number = step.most is not None and len(requests) >= step.most
    return start, min(due, last) if reached and not by_number else last


def tokens_until(requests: Iterable[Request], stop: float) -> float:
    """Tokens that had arrived by then; if an event held several, all events count the same."""
    total = 0.0
    for request in requests:
        if request.ended <= stop:
            total += request.token_count
        elif request.events:
            came = sum(when <= stop for when in request.events)
            total += request.token_count * came / len(request.events)
    return total


def is_good(request: Request, objectives: Objectives) -> bool:
    """Whether it met all of the objectives."""
    values = {name: getattr(request, name) for name in objectives.limits}
    return all(value is None or value <= objectives.limits[name] for name, value in values.items())


def client(load: Load) -> dict[str, Any]:
    """How late the client itself was: its clock, and its sending; a server must not be judged by either."""
    lag = distribution(load.lags) or {"p50": 0.0, "p99": 0.0, "max": 0.0}
    sending = distribution(request.sent - request.intended for request in load.requests)
    seconds = max(load.ended - load.begun, 1e-9)
    events = sum(len(request.events) for request in load.requests)
    share = load.cpu_seconds / seconds
    late = max(lag["p99"], sending["p99"] if sending else 0.0)
    return {
        "lag": {name: lag[name] for name in ("p50", "p99", "max")},
        "send_lag": {name: sending[name] for name in ("p50", "p99", "max")} if sending else None,
        "events_per_second": events / seconds,
        "cpu": share,
        "cpu_us_per_event": load.cpu_seconds / events * 1e6 if events else None,
        "lagged": late > _LAG_LIMIT_MS or share > _CPU_LIMIT,
    }


def _failures(requests: Iterable[Request]) -> dict[str, dict[str, Any]]:
    """By code, most frequent first; `said`: what the server said about the first one."""
    found: dict[str, dict[str, Any]] = {}
    for request in requests:
        if request.failure is not None:
            found.setdefault(request.failure, {"count": 0, "said": request.said})["count"] += 1
    return dict(sorted(found.items(), key=lambda item: -item[1]["count"]))


def _in_flight(requests: Sequence[Request], start: float, stop: float) -> dict[str, float]:
    changes = sorted(
        change for one in requests for change in ((one.sent, 1), (one.ended, -1)) if one.sent < stop
    )
    running = most = 0
    area, before = 0.0, start
    for when, change in changes:
        area += running * (min(when, stop) - min(before, stop))
        before, running = when, running + change
        most = max(most, running)
    return {"mean": area / max(stop - start, 1e-9), "max": most}


def _timeline(requests: Sequence[Request], start: float, end: float) -> dict[str, Any]:
    """What happened in each slice of the step's time: at most some 60 slices, of at least 0.1 s."""
    width = max((end - start) / 60, 0.1)
    slices = max(int((end - start) / width) + 1, 1)
    tokens, failed = [0.0] * slices, [0] * slices
    firsts: list[list[float]] = [[] for _ in range(slices)]

    def place(when: float) -> int:
        return min(max(int((when - start) / width), 0), slices - 1)

    for request in requests:
        each = request.token_count / len(request.events) if request.events else 0
        for when in request.events:
            tokens[place(when)] += each
        if request.failure is not None:
            failed[place(request.ended)] += 1
        if (first := request.time_to_first_token) is not None:
            firsts[place(request.intended)].append(first * 1000)
    return {
        "slice_seconds": width,
        "output_token_throughput": [value / width for value in tokens],
        "failed": failed,
        "time_to_first_token_p50": [statistics.median(values) if values else None for values in firsts],
    }
