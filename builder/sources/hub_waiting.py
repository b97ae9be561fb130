"""How long the hub library waits for the headers of an answer, however they come.

A time-out of its HTTP client starts again with each byte, so that headers, or interim answers (RFC 9110,
15.2) in front of them, could drip for ever.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import httpcore2
import httpx2

from shared.http import limits


class _Waiting(threading.local):
    """What a thread waits for: it sends a request, and reads the headers of its answer, by itself."""

    until: float | None = None


_waiting = _Waiting()


def limit_waiting(client: httpx2.Client) -> None:
    """Have answers begin, and their headers end, within ANSWER_SECONDS of each request."""
    # No option reaches below the transports, of which there is one more for each proxy.
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - no public way
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool  # noqa: SLF001 - no public way
            pool._network_backend = _Backend(pool._network_backend)  # noqa: SLF001 - no public way
    client.event_hooks = {
        "request": [*client.event_hooks["request"], _begin],
        "response": [_end, *client.event_hooks["response"]],
    }


def _begin(_request: httpx2.Request) -> None:
    _waiting.until = time.monotonic() + limits.ANSWER_SECONDS


def _end(_response: httpx2.Response) -> None:
    _waiting.until = None


class _Backend(httpcore2.NetworkBackend):
    def __init__(self, backend: httpcore2.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(self, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(self._backend.connect_tcp(*args, **options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Raises ReadTimeout, also when headers have come for too long."""
        if _waiting.until is not None:
            left = _waiting.until - time.monotonic()
            if left <= 0:
                raise httpcore2.ReadTimeout("the headers of the answer do not end")
            timeout = left if timeout is None else min(timeout, left)
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, *args: Any, **options: Any) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(*args, **options))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
