"""What a server says to a request, in a form in which two servers can be compared.

A transcript maps the name of each thing that a client can see to its value: `status`, a header, a key of the
body (`metrics.seed`), the kinds of the events and the keys of each (`completed.error`). What no two
predictions have in common stands there as its form: an id that the server chose, a time, a random seed.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx2

Transcript = dict[str, object]

HEADERS = (
    "content-type",
    "cache-control",
    "x-accel-buffering",
    "allow",
    "retry-after",
    "location",
    "x-request-id",
)
_FORMS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "a time"),
    # A few random bytes are an id that nobody has to read.
    (re.compile(r"[a-z0-9_-]*[a-z0-9]{12,}", re.ASCII), "an id"),
)
_DIFFER_EACH_TIME = ("predict_time", "time_to_first_token", "tokens_per_second")


def of_answer(answer: httpx2.Response, *, chosen: dict[str, object] | None = None) -> Transcript:
    """The transcript of one answer; `chosen` are the inputs that were sent."""
    found: Transcript = {"status": answer.status_code}
    found |= {f"header {name}": form(answer.headers[name]) for name in HEADERS if name in answer.headers}
    kind = answer.headers.get("content-type", "")
    if kind.startswith("text/event-stream"):
        return found | of_events(answer.text, chosen=chosen)
    if kind.startswith("application/json") and answer.text:
        return found | keys("body", answer.json(), chosen)
    return found | ({"body": answer.text} if answer.text else {})


def of_events(text: str, *, chosen: dict[str, object] | None = None) -> Transcript:
    """The events of a stream: their kinds in order, their data, and the text put together."""
    events = [event_of(block) for block in text.split("\n\n") if block and not block.startswith(":")]
    # How a text is cut into pieces depends on how fast its reader is; that nothing is lost does not.
    kinds = [kind for kind, _ in groupby(kind for kind, _ in events)]
    found: Transcript = {"events": " ".join(kinds)}
    pieces = [data for kind, data in events if kind == "output"]
    if pieces:
        found["output"] = "".join(data["chunk"] for data in pieces)
        found["output keys"] = ", ".join(pieces[0])
        found["output indexes"] = [data["index"] for data in pieces] == list(range(len(pieces)))
    for kind, data in events:
        if kind == "metric":
            found |= keys(f"metric {data.pop('name')}", data, chosen)
        elif kind != "output":
            found |= keys(kind, data, chosen)
    return found


def event_of(block: str) -> tuple[str, dict[str, Any]]:
    """One server-sent event."""
    lines = dict(line.split(": ", 1) for line in block.split("\n"))
    return lines["event"], json.loads(lines["data"])


def keys(place: str, value: object, chosen: dict[str, object] | None = None) -> Transcript:
    """The leaves of a JSON value, by their paths."""
    if isinstance(value, dict) and value:
        found: Transcript = {}
        for key, inner in value.items():
            found |= keys(f"{place}.{key}", inner, chosen)
        return found
    name = place.rpartition(".")[2]
    if name == "output" and isinstance(value, list):
        return {place: "".join(value)}
    metric = place.removeprefix("metric ").partition(".")[0] if name == "value" else name
    a_seed_of_its_own = metric == "seed" and not (chosen and chosen.get("seed") is not None)
    if a_seed_of_its_own or metric in _DIFFER_EACH_TIME:
        return {place: "a number" if isinstance(value, int | float) else form(value)}
    return {place: form(value)}


def form(value: object) -> object:
    """A value, or what takes the place of one that differs each time; null is "null"."""
    if value is None:
        return "null"
    if isinstance(value, str):
        for pattern, stands_for in _FORMS:
            if pattern.fullmatch(value):
                return stands_for
    return value
