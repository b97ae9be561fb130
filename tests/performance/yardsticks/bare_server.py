"""The least that a server of event streams can do: a constant event for all streams at each step of a clock.

    python -m tests.performance.yardsticks.bare_server PORT TOKENS RATE

Answers any request with the mock's text, TOKENS events at RATE a second, and knows nothing of HTTP but its head.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class _Stream(asyncio.Protocol):
    running: set[_Stream]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.sent = 0

    def data_received(self, data: bytes) -> None:
        if data and self.sent == 0 and self not in self.running:
            self.transport.write(_HEAD)  # type: ignore[attr-defined] # of a connection, so it writes
            self.running.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self.running.discard(self)


async def _serve(port: int, tokens: int, rate: float) -> None:
    _Stream.running = set()
    loop = asyncio.get_running_loop()
    await loop.create_server(_Stream, "127.0.0.1", port, backlog=4096)
    step = loop.time()
    while True:
        step += 1 / rate
        await asyncio.sleep(step - loop.time())
        for stream in list(_Stream.running):
            text = f" {stream.sent}" if stream.sent else "0"
            stream.sent += 1
            stream.transport.write(b'data: {"chunk":"%s"}\n\n' % text.encode())  # type: ignore[attr-defined] # as above
            if stream.sent == tokens:
                stream.transport.close()


if __name__ == "__main__":
    port, tokens, rate = sys.argv[1:]
    uvloop.run(_serve(int(port), int(tokens), float(rate)))
