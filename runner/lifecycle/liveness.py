"""Whether an HTTP server answers at all: a hang is not noticed otherwise.

It is asked over one kept connection. Under a flood of others, a new one is refused, or waits to be accepted,
while the server does its work: it would be killed, with all that it serves, for being busy.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

_INTERVAL_SECONDS = 1.0
_DEADLINE_SECONDS = 5.0
_MAX_FAILURES = 2
_ENDED = (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


async def wait_until_hung(host: str, port: int, path: str, *, tls: bool) -> None:
    """Ask the server once a second; return when it has not answered twice, within 5 s each.

    Any answer counts, even a refusal. Call this once it listens.
    """
    failures = 0
    client = _Client(host, port, path, tls=tls)
    try:
        while failures < _MAX_FAILURES:
            await asyncio.sleep(_INTERVAL_SECONDS)
            failures = 0 if await client.is_answered() else failures + 1
    finally:
        client.close()


class _Client:
    def __init__(self, host: str, port: int, path: str, *, tls: bool) -> None:
        self._host, self._port, self._path, self._tls = host, port, path, tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def is_answered(self) -> bool:
        """Whether an answer comes in time.

        A new connection that the server ends at once counts too: it is full, and does not hang.
        """
        answered = False
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                with suppress(*_ENDED):  # it may have been closed in the meantime
                    answered = self._streams is not None and await self._ask(*self._streams)
                answered = answered or await self._ask_anew()
        except _ENDED:
            self.close()
            return True
        except (OSError, TimeoutError):
            pass
        if not answered:
            self.close()
        return answered

    async def _ask_anew(self) -> bool:
        self.close()
        ssl = _trust_all() if self._tls else None
        self._streams = await asyncio.open_connection(self._host, self._port, ssl=ssl)
        return await self._ask(*self._streams)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether an answer comes. Raises what `_ENDED` has when the connection ends before."""
        writer.write(f"GET {self._path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if length := _LENGTH.search(head):
            await reader.readexactly(int(length[1]))
        else:
            self.close()
        return head.startswith(b"HTTP/")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def _trust_all() -> object:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is our own, on this machine
    return context
