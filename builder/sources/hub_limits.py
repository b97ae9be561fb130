"""How long the hub may take, like any server (shared/http/limits.py).

By itself, the hub library waits for ever for the answers to some requests, and for each byte of a drip.
Dripping headers are only bounded by their size (100 kB).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
from huggingface_hub import set_client_factory
from huggingface_hub.utils._http import default_client_factory

from shared.http import TooSlow, limits, paced

if TYPE_CHECKING:
    from collections.abc import Iterator


def limit_the_hub() -> None:
    """Make the hub library's own HTTP client abandon what is too slow."""
    set_client_factory(_client)


def _client() -> httpx2.Client:
    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], _limit_silence],
        "response": [*hooks["response"], _limit_drips],
    }
    return client


def _limit_silence(request: httpx2.Request) -> None:
    timeouts = request.extensions.get("timeout", {})
    most = {"connect": limits.CONNECT_SECONDS, "read": limits.SILENCE_SECONDS}
    request.extensions["timeout"] = {
        **timeouts,
        **{name: min(timeouts.get(name) or seconds, seconds) for name, seconds in most.items()},
    }


def _limit_drips(response: httpx2.Response) -> None:
    assert isinstance(response.stream, httpx2.SyncByteStream)
    response.stream = _Paced(response.stream)


class _Paced(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from paced(iter(self._stream))
        except TooSlow:
            raise httpx2.ReadTimeout("the server sends too slowly") from None

    def close(self) -> None:
        self._stream.close()
