"""The answers of an HTTP server that is asked again and again: the signs of life of one that is not ours.

It is asked over one kept connection. Under a flood of others, a new one would wait to be accepted while the
server does its work.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

_INTERVAL_SECONDS = 1.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Answers:
    """Counts them."""

    def __init__(self, host: str, port: int, path: str) -> None:
        """`path` is asked for, at `host`:`port`."""
        self._host, self._port = host, port
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self.count = 0
        """The answers so far, whatever they say."""

    async def ask(self) -> None:
        """Ask a second after each answer, and after each connection that has ended, until cancelled."""
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._ask_over_one_connection()
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def _ask_over_one_connection(self) -> None:
        """Return when the server ends its connection, or may be about to. Raises how it ended."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            while True:
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = _LENGTH.search(head)
                if length is not None:
                    await reader.readexactly(int(length[1]))
                self.count += 1
                if length is None:
                    return
                await asyncio.sleep(_INTERVAL_SECONDS)
        finally:
            writer.transport.abort()
