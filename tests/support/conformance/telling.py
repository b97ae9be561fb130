"""Webhooks, and one more prediction than there is room for."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from tests.support.conformance.conversation import (
    ASYNC,
    EVENTS,
    FAILS,
    LONG,
    PLACES,
    SHORT,
    add,
    conversation,
    new_id,
    without_length,
)
from tests.support.conformance.transcript import keys

if TYPE_CHECKING:
    from tests.support.conformance.conversation import Server
    from tests.support.conformance.transcript import Transcript

# --- webhooks


_SENT_WITH = ("content-type", "authorization", "traceparent", "tracestate")


def _add_webhooks() -> None:
    filters = (None, ["start"], ["output"], ["completed"], ["start", "completed"], ["logs"], [])
    texts: dict[str, dict[str, Any]] = {
        "a prediction": {"prompt": "x", "max_tokens": 60},
        "one that fails": {"prompt": " "},
        "one that fails half-way": {"prompt": "<error>", "max_tokens": 60},
    }
    for name, inputs in texts.items():
        for events in filters if name == "a prediction" else (None,):
            for form, headers in (("", None), (" in the background", ASYNC), (" as events", EVENTS)):
                if form and events not in (None, ["start", "completed"]):
                    continue

                def speak(
                    server: Server,
                    inputs: dict[str, Any] = inputs,
                    events: list[str] | None = events,
                    headers: dict[str, str] | None = headers,
                ) -> Transcript:
                    more = {} if events is None else {"webhook_events_filter": events}
                    return _webhooks(server, inputs, headers, f"/{new_id()}", **more)

                add(
                    f"a webhook of {name}{form}, {json.dumps(events)}",
                    "a webhook",
                    *([FAILS] if "fails" in name else []),
                    speak=speak,
                )


_add_webhooks()


@conversation("a webhook that fails twice", "a webhook")
def _(server: Server) -> Transcript:
    path = f"/{new_id()}/broken"
    return _webhooks(server, SHORT, None, path, least=3, webhook_events_filter=["completed"])


@conversation("a webhook of one that is cancelled", "a webhook", "a prediction that is cancelled")
def _(server: Server) -> Transcript:
    path = f"/{new_id()}"
    server.begin("told", webhook=server.hooks.url + path, webhook_events_filter=["completed"])
    server.cancel("told")
    ((_, body),) = server.hooks.calls(path, 1, to_the_end=True)
    return without_length(keys("webhook", body))


@conversation("a webhook of a traced request", "a webhook")
def _(server: Server) -> Transcript:
    traced = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "x=y"}
    return _webhooks(server, SHORT, traced, f"/{new_id()}")


@conversation("a webhook that is no address", "a webhook that goes nowhere")
def _(server: Server) -> Transcript:
    return server.predict(SHORT, webhook="nonsense", webhook_events_filter=[])


@conversation("a webhook on this machine", "a webhook that goes nowhere")
def _(server: Server) -> Transcript:
    return server.predict(SHORT, webhook="http://127.0.0.1:1/", webhook_events_filter=[])


def _webhooks(
    server: Server,
    inputs: dict[str, Any],
    headers: dict[str, str] | None,
    path: str,
    least: int = 1,
    **more: Any,
) -> Transcript:
    server.predict(inputs, headers, webhook=server.hooks.url + path, **more)
    events = more.get("webhook_events_filter")
    if events in ([], ["logs"]):
        least = 0
    calls = server.hooks.calls(path, least, to_the_end=events is None or "completed" in events)
    # Two that are sent at nearly the same time may come in the other order.
    calls.sort(key=lambda call: call[1]["status"] != "processing")
    bodies = [body for _, body in calls]
    statuses = [body["status"] for body in bodies]
    found: Transcript = {"statuses": " ".join(dict.fromkeys(statuses))}
    if path.endswith("/broken"):
        found["tries"] = len(calls)
    if calls:
        sent, last = calls[-1]
        found |= {f"webhook header {name}": sent.get(name) for name in _SENT_WITH}
        found |= keys("webhook", last)
        if last["status"] == "processing":
            found = without_length(found)
    return found


# --- more than there is room for


@conversation("one more than there is room for")
def _(server: Server) -> Transcript:
    server.wait_idle()
    names = [f"fill-{number}" for number in range(PLACES)]
    for name in names:
        body = {"id": name, "input": LONG}
        assert server.http.post("/predictions", json=body, headers=ASYNC).status_code == 202
    time.sleep(0.3)
    found = server.predict(SHORT)
    found |= {"health": server.http.get("/health-check").json()["status"]}
    for name in names:
        server.cancel(name)
    server.wait_idle()
    return found
