"""What a load shows, in sentences: what is slow, and each thing that went wrong."""

from __future__ import annotations

import statistics
from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cli.output import counted
from cli.perf.figures import MAX_FAILURES, is_held

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.perf.load import Load
    from cli.perf.request import Request

_GROWN = 2.0  # times its value under the lightest load: slow
_OUTLIER = 5.0  # times the median
_STALL = 10.0  # times the median pause
_LEAST_STALL = 0.2  # s
_LEAST_WAIT = 0.1  # s beyond the median
_LEAST_GROWTH_MS = {"time_to_first_token": 100.0, "inter_token_latency": 5.0}
_GAINED = 1.1  # throughput: less is not a gain from a heavier load


@dataclass(frozen=True)
class Finding:
    """One thing that went wrong; `kind` is three words at most, for programs too."""

    kind: str
    text: str

    def view(self) -> dict[str, str]:
        """For JSON."""
        return {"kind": self.kind, "text": self.text}


def of_requests(loads: Sequence[Load], warm_up: Request | None = None) -> list[Finding]:
    """What single requests show, across all steps."""
    requests = [request for load in loads for request in load.requests]
    return [
        *_failures(requests),
        *_lost(requests),
        *_stalls(loads),
        *_first_tokens(loads, warm_up),
    ]


def of_interruption(load: Load, left: int) -> Finding:
    """That Ctrl-C ended this load; `left` is how many others were not run at all."""
    text = f"Ctrl-C after {seconds(load.ended - load.begun)} at {load.step.label}"
    if unfinished := sum(request.unfinished for request in load.requests):
        text += (
            f"; {_of(unfinished, len(load.requests), 'request')} had not ended (not counted in the latencies)"
        )
    if left:
        text += f"; {counted(left, 'load')} not run"
    return Finding("interrupted", text)


def _failures(requests: Sequence[Request]) -> list[Finding]:
    found: dict[str, list[Request]] = {}
    for request in requests:
        if request.failure is not None:
            found.setdefault(request.failure, []).append(request)
    texts = []
    for code, failed in sorted(found.items(), key=lambda item: -len(item[1])):
        said = f" ({failed[0].said.strip()[:160]})" if failed[0].said.strip() else ""
        texts.append(f"{_of(len(failed), len(requests), 'request')} failed: {code}{said}")
    return [Finding("failures", text) for text in texts]


def _lost(requests: Sequence[Request]) -> list[Finding]:
    found = []
    for kind, name in (("lost", "lost tokens"), ("wrong", "wrong tokens")):
        hit = [request for request in requests if request.is_good and getattr(request, kind)]
        if hit:
            total = sum(getattr(request, kind) for request in hit)
            words = "missing" if kind == "lost" else "repeated, out of order or unexpected"
            text = f"{total} token{'' if total == 1 else 's'} {words}"
            found.append(Finding(name, f"{text}, in {_of(len(hit), len(requests), 'answer')}"))
    return found


def _stalls(loads: Sequence[Load]) -> list[Finding]:
    """Pauses within a stream that are far longer than usual: of single streams, and of all together."""
    requests = [request for load in loads for request in load.requests]
    several = [request for request in requests if len(request.events) > 2]
    if not several:
        return []
    usual = statistics.median(
        (request.events[-1] - request.events[0]) / (len(request.events) - 1) for request in several
    )
    limit = max(_STALL * usual, _LEAST_STALL)
    single: list[float] = []
    shared: list[float] = []
    for load in loads:
        for request in load.requests:
            begin, end = request.pause
            if end - begin > limit:
                alike = _is_shared(begin, end, request, load.requests)
                (shared if alike else single).append(end - begin)
    found = []
    ending = f"; {seconds(usual)} between two events is usual"
    if single:
        text = f"{_of(len(single), len(requests), 'stream')} stalled: a pause of up to {seconds(max(single))}"
        found.append(Finding("stalls", text + ending))
    if shared:
        text = f"a pause of up to {seconds(max(shared))} that most streams in progress shared"
        found.append(Finding("pauses", f"{_of(len(shared), len(requests), 'stream')} had {text}{ending}"))
    return found


def _is_shared(begin: float, end: float, request: Request, requests: Sequence[Request]) -> bool:
    """Whether most of the other streams under way got nothing in the middle half of the pause either."""
    quarter = (end - begin) / 4
    others = went_on = 0
    for other in requests:
        events = other.events
        if other is not request and events and events[0] < begin and other.ended > end:
            others += 1
            place = bisect(events, begin + quarter)
            went_on += place < len(events) and events[place] < end - quarter
    return others > 0 and went_on < others / 2


def _first_tokens(loads: Sequence[Load], warm_up: Request | None) -> list[Finding]:
    """First tokens that came far later than others: at the very start, or now and then under one load."""
    medians = [statistics.median(waits) for load in loads if (waits := _waits(load.requests))]
    if not medians:
        return []
    usual = min(medians)
    early: list[float] = []
    for wait in _waits([*([warm_up] if warm_up else []), *(one for load in loads for one in load.requests)]):
        if wait <= _late(usual):
            break
        early.append(wait)
    found = []
    if early:
        text = f"the first token of the first {_requests(len(early))} came after up to {seconds(max(early))}"
        found.append(Finding("slow start", f"{text}; {seconds(usual)} is usual once the server is warm"))
    begun = max(len(early) - (warm_up is not None), 0)
    for load in loads:
        waits = _waits(load.requests)
        skipped, begun = begun, max(begun - len(waits), 0)
        del waits[:skipped]
        if len(waits) < 2:
            continue
        median = statistics.median(waits)
        late = [wait for wait in waits if wait > _late(median)]
        if late:
            text = f"{_of(len(late), len(waits), 'first token')} at {load.step.label} came late"
            text += f", after up to {seconds(max(late))}; half came within {seconds(median)}"
            found.append(Finding("late first tokens", text))
    return found


def _waits(requests: Sequence[Request]) -> list[float]:
    return [wait for request in requests if (wait := request.time_to_first_token) is not None]


def _late(usual: float) -> float:
    return max(_OUTLIER * usual, usual + _LEAST_WAIT)


def of_steps(steps: Sequence[dict[str, Any]], limits: dict[str, float]) -> list[Finding]:
    """What the figures show: about the client and tokens, and which objectives are missed where."""
    found = []
    for step in steps:
        load, lag = step["load"], step["client"]
        if lag["lagged"]:
            late = max(lag["lag"]["p99"], (lag["send_lag"] or {"p99": 0.0})["p99"])
            text = f"the client itself lagged at {load}: p99 {milliseconds(late)}, {lag['cpu']:.0%} of a core"
            found.append(Finding("client lag", f"{text}; what it saw as late need not be the server's fault"))
        tokens = step["tokens"]
        if (
            tokens["lost"] is None
            and tokens["counted_by"] == "server"
            and 0 < tokens["actual"] < tokens["expected"]
        ):
            text = f"{tokens['actual']} of {tokens['expected']} tokens arrived at {load}"
            found.append(Finding("fewer tokens", f"{text}: answers ended before the requested length"))
        for name, limit in limits.items():
            value = step[name] and step[name]["p99"]
            if value is not None and value > limit * 1000:
                text = f"{words(name)} p99 is {milliseconds(value)} at {load}, over {seconds(limit)}"
                found.append(Finding("objective missed", text))
    return found


def sentence(steps: Sequence[dict[str, Any]]) -> str:
    """What was refused and what is slow, in a few words: the heaviest load compared with the lightest."""
    by_load = sorted(steps, key=lambda step: step["concurrency"] or step["rate"] or 0)
    answered = [step for step in by_load if step["request_latency"]]
    if not answered:
        return "Nothing was answered."
    refused = next((step for step in by_load if _is_refused(step["requests"])), None)
    if refused is None:
        return _slow(answered)
    share = f"More than {MAX_FAILURES:.0%} of the" if refused["requests"]["succeeded"] else "All"
    return f"{share} requests failed at {refused['load']}; the rest is about the others. {_slow(answered)}"


def _is_refused(requests: dict[str, Any]) -> bool:
    """Whether so many failed that a server does not hold such a load; one cut short may have no answers."""
    return requests["failed"] > 0 and not is_held(requests)


def _slow(answered: Sequence[dict[str, Any]]) -> str:
    last = answered[-1]
    if len(answered) == 1:
        return _single(last)
    best = {name: _best(answered, name) for name in ("time_to_first_token", "inter_token_latency")}
    slow = [
        name
        for name, one in best.items()
        if last[name] and one is not None and _has_grown(last[name]["p50"], one[name]["p50"], name)
    ]
    if not slow:
        first = answered[0]
        gain = last["output_token_throughput"] / max(first["output_token_throughput"], 0.001)
        text = f"Nothing gets slow up to {last['load']}: {_rates(last)}"
        return f"{text}, {gain:.1f} times that of {first['load']}. {_single(last)}"
    parts = []
    if "time_to_first_token" in slow:
        parts.append(
            f"First tokens get slow: at {last['load']} half of them take longer than"
            f" {milliseconds(last['time_to_first_token']['p50'])}"
            f" ({_at_best(best, 'time_to_first_token')}){_queue(last)}"
        )
    if "inter_token_latency" in slow:
        parts.append(
            f"Tokens get slow: {milliseconds(last['inter_token_latency']['p50'])} apart at {last['load']}"
            f" ({_at_best(best, 'inter_token_latency')})"
        )
    full = _full(answered)
    if full is not None:
        parts.append(f"The server is full at {full['load']} ({_rates(full)}): more load only adds waiting")
    return ". ".join(parts) + "."


def _has_grown(value: float, best: float, name: str) -> bool:
    return value >= _GROWN * best and value - best >= _LEAST_GROWTH_MS[name]


def _best(steps: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The step where it was fastest."""
    return min(
        (step for step in steps if step[name]), key=lambda step: float(step[name]["p50"]), default=None
    )


def _at_best(best: dict[str, dict[str, Any] | None], name: str) -> str:
    step = best[name]
    return f"{milliseconds(step[name]['p50'])} at {step['load']}" if step else ""


def _full(steps: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The step after which heavier ones give no more tokens."""
    for number, step in enumerate(steps[:-1]):
        heavier = max(later["output_token_throughput"] for later in steps[number + 1 :])
        if heavier < step["output_token_throughput"] * _GAINED:
            return step
    return None


def _single(step: dict[str, Any]) -> str:
    """Where the time of a request goes."""
    whole, first = step["request_latency"]["p50"], step["time_to_first_token"]
    if first is None:
        return f"Half of the requests take longer than {milliseconds(whole)} at {step['load']}."
    wait = first["p50"]
    trend = _trend(step)
    if trend is not None:
        return trend
    if wait > whole / 2:
        return (
            f"The wait for the first token is most of a request at {step['load']}: {milliseconds(wait)} of"
            f" {milliseconds(whole)}{_queue(step)}."
        )
    pace = step["inter_token_latency"]
    apart = f", {milliseconds(pace['p50'])} apart" if pace else ""
    return (
        f"Of the {milliseconds(whole)} of a request at {step['load']}, the tokens after the first take"
        f" {milliseconds(whole - wait)}{apart}; the first comes after {milliseconds(wait)}."
    )


def _trend(step: dict[str, Any]) -> str | None:
    """At a rate: whether waiting grows while the load lasts, because more arrives than is completed."""
    if step["rate"] is None:
        return None
    waits = [wait for wait in step["timeline"]["time_to_first_token_p50"] if wait is not None]
    third = len(waits) // 3
    if third < 2:
        return None
    begin, end = statistics.median(waits[:third]), statistics.median(waits[-third:])
    if end < _GROWN * begin or end - begin < _LEAST_WAIT * 1000:
        return None
    return (
        f"The server does not keep up with {step['load']}: the wait for the first token grows from"
        f" {milliseconds(begin)} to {milliseconds(end)} while the load lasts{_queue(step)}."
    )


def _queue(step: dict[str, Any]) -> str:
    view = step.get("server") or {}
    if view.get("most_waiting"):
        return f", with up to {counted(round(view['most_waiting']), 'request')} waiting in the engine"
    return ""


def _rates(step: dict[str, Any]) -> str:
    return f"{step['output_token_throughput']:,.0f} tokens/s"


def words(name: str) -> str:
    """`time_to_first_token` as people read it."""
    return name.replace("_", " ")


def seconds(value: float) -> str:
    """A time in s as people read it."""
    return milliseconds(value * 1000)


def milliseconds(value: float) -> str:
    """A time in ms as people read it: `0`, `9.9 ms`, `10 ms`, `1.00 s`."""
    if not value:
        return "0"
    if round(value) >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms" if round(value, 1) >= 10 else f"{value:.1f} ms"


def _requests(number: int) -> str:
    return "request" if number == 1 else f"{number} requests"


def _of(number: int, total: int, what: str) -> str:
    return f"{number} of {total} {what}{'' if total == 1 else 's'}"
