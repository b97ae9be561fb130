"""Predictions that are begun twice, run in the background, are asked after, cancelled and left."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx2

from tests.support.conformance.conversation import (
    ASYNC,
    EVENTS,
    LONG,
    REFUSED,
    SHORT,
    add,
    asks,
    conversation,
    new_id,
    without_length,
)
from tests.support.conformance.transcript import of_events

if TYPE_CHECKING:
    from tests.support.conformance.conversation import Server
    from tests.support.conformance.transcript import Transcript


@conversation("an id of one's own")
def _(server: Server) -> Transcript:
    return server.predict(SHORT, id="mine-1_A")


@conversation("two ids", REFUSED)
def _(server: Server) -> Transcript:
    return server.ask("PUT", "/predictions/one", json={"id": "other", "input": SHORT})


@conversation("the same id twice")
def _(server: Server) -> Transcript:
    return server.ask("PUT", "/predictions/same", json={"id": "same", "input": SHORT})


def _add_puts() -> None:
    for form, headers in (("as JSON", None), ("as events", EVENTS), ("in the background", ASYNC)):
        add(
            f"PUT, {form}",
            "a prediction that succeeds",
            f"a prediction that succeeds, {form}",
            speak=asks("PUT", f"/predictions/{new_id()}", json={"input": SHORT}, headers=headers),
        )

        def running(server: Server, headers: dict[str, str] | None = headers) -> Transcript:
            name = "runs"
            server.begin(name, {"prompt": "x", "max_tokens": 200})
            server.wait_running(name)
            found = server.ask("PUT", f"/predictions/{name}", json={"input": SHORT}, headers=headers)
            # How far it has come is not the same twice.
            assert "0 1 2".startswith(str(found.pop("body.output", ""))[:5])
            server.cancel(name)
            server.wait_idle()
            return found

        add(
            f"PUT of one that runs, {form}",
            "PUT of one that runs",
            "a prediction that succeeds, as events",
            speak=running,
        )

        def ended(server: Server, headers: dict[str, str] | None = headers) -> Transcript:
            server.http.put("/predictions/ended", json={"input": SHORT})
            server.wait_idle()
            return server.ask("PUT", "/predictions/ended", json={"input": LONG | SHORT}, headers=headers)

        add(
            f"PUT of one that was waited for and ended, {form}",
            "a prediction that succeeds",
            f"a prediction that succeeds, {form}",
            speak=ended,
        )

        def ended_in_background(server: Server, headers: dict[str, str] | None = headers) -> Transcript:
            name = new_id()
            server.begin(name, {"prompt": "x", "max_tokens": 2})
            time.sleep(0.3)
            return server.ask("PUT", f"/predictions/{name}", json={"input": SHORT}, headers=headers)

        add(
            f"PUT of one that ended in the background, {form}",
            "PUT of one that ended in the background",
            speak=ended_in_background,
        )


_add_puts()


@conversation("POST with the id of one that runs")
def _(server: Server) -> Transcript:
    server.begin("taken")
    found = server.predict(SHORT, id="taken")
    server.cancel("taken")
    server.wait_idle()
    return found


# --- in the background


@conversation("POST in the background")
def _(server: Server) -> Transcript:
    return server.predict(SHORT, ASYNC)


@conversation("POST in the background, as events", "a prediction that succeeds, as events")
def _(server: Server) -> Transcript:
    return server.predict(SHORT, {**ASYNC, **EVENTS})


@conversation("POST in the background of what fails")
def _(server: Server) -> Transcript:
    return server.predict({"prompt": " "}, ASYNC)


@conversation("a wrong input in the background", REFUSED)
def _(server: Server) -> Transcript:
    return server.predict({"prompt": 1}, ASYNC)


def _add_gets() -> None:
    for method in ("GET", "HEAD"):
        for form, headers in (("", None), (", as events", EVENTS)):

            def running(
                server: Server, method: str = method, headers: dict[str, str] | None = headers
            ) -> Transcript:
                server.begin("asked-after", {"prompt": "x", "max_tokens": 100})
                found = server.ask(method, "/predictions/asked-after", headers=headers)
                server.cancel("asked-after")
                server.wait_idle()
                return found

            add(f"{method} of one that runs{form}", "GET of a prediction", speak=running)
            add(
                f"{method} of one that does not exist{form}",
                "GET of a prediction",
                speak=asks(method, "/predictions/nobody", headers=headers),
            )


_add_gets()

# --- cancel


@conversation("cancel of one that runs")
def _(server: Server) -> Transcript:
    server.begin("stopped")
    found = server.ask("POST", "/predictions/stopped/cancel")
    server.wait_idle()
    return found


@conversation("cancel of one that was cancelled")
def _(server: Server) -> Transcript:
    server.begin("stopped-twice")
    server.cancel("stopped-twice")
    time.sleep(0.3)
    return server.ask("POST", "/predictions/stopped-twice/cancel")


@conversation("cancel of one that does not exist")
def _(server: Server) -> Transcript:
    return server.ask("POST", "/predictions/nobody/cancel")


@conversation("cancel of one that is waited for", "a prediction that is cancelled")
def _(server: Server) -> Transcript:
    box = {}
    thread = threading.Thread(target=lambda: box.update(found=server.predict(LONG, id="waited")))
    thread.start()
    time.sleep(0.3)
    server.cancel("waited")
    thread.join()
    server.wait_idle()
    return without_length(box["found"])


@conversation("cancel of an event stream", "a prediction that is cancelled")
def _(server: Server) -> Transcript:
    text = ""
    body = {"id": "stream", "input": LONG}
    with server.http.stream("POST", "/predictions", json=body, headers=EVENTS) as answer:
        cancelled = False
        for piece in answer.iter_text():
            text += piece
            # No speed is reported for a single token.
            if not cancelled and text.count("event: output") > 1:
                server.cancel("stream")
                cancelled = True
    server.wait_idle()
    return without_length(of_events(text))


@conversation("leaving an event stream")
def _(server: Server) -> Transcript:
    body = {"id": "left", "input": LONG}
    with server.http.stream("POST", "/predictions", json=body, headers=EVENTS) as answer:
        next(answer.iter_bytes())
    return _once_gone(server, "left")


@conversation("leaving a plain POST")
def _(server: Server) -> Transcript:
    with suppress(httpx2.ReadTimeout):
        server.http.post("/predictions", json={"id": "left-too", "input": LONG}, timeout=0.3)
    return _once_gone(server, "left-too")


def _once_gone(server: Server, prediction_id: str) -> Transcript:
    """Whether a prediction whose client has left ends long before its text would."""
    deadline = time.monotonic() + 10
    while server.http.post(f"/predictions/{prediction_id}/cancel").status_code == 200:
        if time.monotonic() > deadline:
            return {"ends": False}
        time.sleep(0.05)
    return {"ends": True}


@conversation("POST /shutdown", "/shutdown")
def _(server: Server) -> Transcript:
    found = server.ask("POST", "/shutdown")
    if found["status"] == 200:
        server.wait_gone()  # the supervisor starts another
    return found
