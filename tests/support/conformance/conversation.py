"""A server to talk to, and things to say to it, each with the groups that the table may name it by."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import httpx2

from tests.support.conformance.transcript import of_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.conformance.transcript import Transcript
    from tests.support.conformance.webhooks import Hooks

PLACES = 16
EVENTS = {"accept": "text/event-stream"}
ASYNC = {"prefer": "respond-async"}
SHORT = {"prompt": "x", "max_tokens": 3}
LONG = {"prompt": "x", "max_tokens": 3000}
ANY = "any request"
FAILS = "a prediction that fails"
REFUSED = "a body that is refused"


class Server:
    """One of the two, and how to talk to it."""

    def __init__(self, url: str, hooks: Hooks) -> None:
        self.hooks = hooks
        self.http = httpx2.Client(base_url=url, timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def ask(self, method: str, path: str, **request: Any) -> Transcript:
        return of_answer(self.http.request(method, path, **request))

    def predict(self, inputs: object, headers: dict[str, str] | None = None, **more: object) -> Transcript:
        answer = self.http.post("/predictions", json={"input": inputs, **more}, headers=headers)
        return of_answer(answer, chosen=inputs if isinstance(inputs, dict) else None)

    def begin(self, prediction_id: str, inputs: dict[str, Any] = LONG, **more: object) -> None:
        """Begin a prediction in the background."""
        body = {"id": prediction_id, "input": inputs, **more}
        assert self.http.post("/predictions", json=body, headers=ASYNC).status_code == 202
        time.sleep(0.1)

    def wait_running(self, prediction_id: str) -> None:
        """Until a prediction that was begun is processed: on a busy machine its worker takes it up late."""
        deadline = time.monotonic() + 20
        body = {"input": LONG}
        while (
            self.http.put(f"/predictions/{prediction_id}", json=body, headers=ASYNC).json()["status"]
            == "starting"
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def cancel(self, prediction_id: str) -> None:
        self.http.post(f"/predictions/{prediction_id}/cancel")

    def wait_idle(self) -> None:
        """Until every place is free again: Cog gives one back some time after the answer."""
        deadline = time.monotonic() + 20
        while not self._has_room():
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_gone(self) -> None:
        """Wait until nobody answers any more."""
        deadline = time.monotonic() + 20
        with suppress(httpx2.TransportError):
            while self.http.get("/health-check"):
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def _has_room(self) -> bool:
        return self.http.get("/health-check").json()["status"] == "READY"


@dataclass(frozen=True)
class Conversation:
    """Something to say to a server; `groups` begins with its own name."""

    groups: tuple[str, ...]
    speak: Callable[[Server], Transcript] = field(repr=False)


CONVERSATIONS: list[Conversation] = []


def add(name: str, *groups: str, speak: Callable[[Server], Transcript]) -> None:
    CONVERSATIONS.append(Conversation((name, *groups, ANY), speak))


def conversation(name: str, *groups: str) -> Callable[[Callable[[Server], Transcript]], None]:
    return lambda speak: add(name, *groups, speak=speak)


def asks(method: str, path: str, **request: Any) -> Callable[[Server], Transcript]:
    return lambda server: server.ask(method, path, **request)


def predicts(inputs: object, **more: object) -> Callable[[Server], Transcript]:
    return lambda server: server.predict(inputs, **more)


def new_id() -> str:
    return uuid.uuid4().hex


def without_length(found: Transcript) -> Transcript:
    """Where it was cut depends on the moment; that there is a beginning of the text does not."""
    for name, value in found.items():
        if name.endswith("output") and isinstance(value, str):
            found[name] = "a beginning" if value.startswith("0") else value
        if "output_token_count" in name and isinstance(value, int):
            found[name] = "a number"
    return found
