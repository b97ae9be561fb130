"""What a connection writes in one pass of the event loop is sent together, and its last words arrive.

uvicorn writes the head of an answer, each event and the end one by one; uvloop hands each to the kernel,
which wakes the client for it. And when a kernel closes a socket with unread data, it resets the connection,
so the client may lose the answer that said why.
"""

from __future__ import annotations

import asyncio
from typing import Any

_LINGER_SECONDS = 5
_MAX_BYTES = 1 << 16  # more is sent immediately, so that the writer learns when the client is behind


class Writes:
    """The connections of one event loop that have something to send."""

    def __init__(self) -> None:
        self._waiting: list[GatheringTransport] = []

    def await_end_of_pass(self, transport: GatheringTransport) -> None:
        """Have it send what it has once everything else in this pass has written."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._send)
        self._waiting.append(transport)

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            transport.send()


class GatheringTransport:
    """A transport whose writes are sent at the end of the pass; everything else is that of the transport
    inside.
    """

    def __init__(self, transport: asyncio.Transport, writes: Writes) -> None:
        self._transport = transport
        self._writes = writes
        self.has_read_all = True
        """Whether the client has sent all of what it began."""
        self._lingers = False
        self._parts: list[bytes] = []
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this after what was written before."""
        if not self._parts:
            self._writes.await_end_of_pass(self)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MAX_BYTES:
            self.send()

    def send(self) -> None:
        """Send what has been written."""
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))

    def is_closing(self) -> bool:
        """Whether nothing more is sent, and what still arrives is ignored."""
        return self._lingers or self._transport.is_closing()

    def close(self) -> None:
        """Send what has been written, and close: immediately, or when the client has had time to read it."""
        self.send()
        if self._lingers or self.has_read_all or self._transport.is_closing():
            self._transport.close()
            return
        self._lingers = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._transport.resume_reading()
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._transport.close)
