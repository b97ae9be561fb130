"""A small client of Cog's HTTP API: predictions as JSON, and as server-sent events."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from demo.cog_server import TRUSTS_NOBODY
from shared.errors import PredictionFailed, from_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LAST_EVENTS = {"completed", "error"}


class Event(NamedTuple):
    """One server-sent event: `start`, `output`, `log`, `metric` or `completed`, and its data."""

    kind: str
    data: dict[str, Any]


class PredictionClient:
    """Predictions of one Cog server."""

    def __init__(self, url: str, timeout: float = 600) -> None:
        """`timeout`: seconds that the server may be silent."""
        self._url = f"{url}/predictions"
        self._timeout = timeout

    def predict(self, inputs: Mapping[str, object]) -> dict[str, Any]:
        """Run a prediction to its end and return Cog's answer, whose status is "succeeded".

        Raises the coded error that the prediction failed with, else PredictionFailed.
        """
        with _connected():
            answer = httpx2.post(
                self._url, json={"input": inputs}, timeout=self._timeout, verify=TRUSTS_NOBODY
            )
        return _succeeded(answer.json())

    def events(self, inputs: Mapping[str, object]) -> Iterator[Event]:
        """Run a prediction; yield its events as they come. Leaving the iteration early cancels it.

        Raises as `predict` does when it was refused instead.
        """
        body = {"input": inputs}
        with (
            _connected(),
            httpx2.Client(timeout=self._timeout, verify=TRUSTS_NOBODY) as http,
            http.sse(self._url, method="POST", json=body) as source,
        ):
            if not source.response.headers.get("content-type", "").startswith("text/event-stream"):
                _succeeded(json.loads(source.response.read()))
            for event in source:
                yield Event(event.event, json.loads(event.data))
                if event.event in _LAST_EVENTS:
                    return

    def text(self, inputs: Mapping[str, object]) -> Iterator[str]:
        """Run a prediction; yield its text as it comes. Raises as `predict` does."""
        for event in self.events(inputs):
            if event.kind == "output":
                yield event.data["chunk"]
            elif event.kind == "completed":
                _succeeded(event.data)


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except httpx2.TransportError:
        raise PredictionFailed(reason="the server ended, or the connection broke") from None


def _succeeded(answer: dict[str, Any]) -> dict[str, Any]:
    if answer.get("status") == "succeeded":
        return answer
    reason = str(answer.get("error") or answer.get("detail") or answer)
    raise from_text(reason) or PredictionFailed(reason=reason)
