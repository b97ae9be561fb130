"""Many simultaneous requests to Triton's HTTP endpoint `generate_stream`, from one thread."""

from __future__ import annotations

import json
import selectors
import socket
import time
from dataclasses import dataclass, field


@dataclass
class GenerateStream:
    """One request: the JSON of its events."""

    events: list[dict] = field(default_factory=list)
    complete: bool = False
    """Whether the server ended the answer as HTTP wants it."""
    _body: bytes = b""
    _in_body: bool = False
    _rest: bytes = b""

    def feed(self, data: bytes) -> None:
        self._rest += data
        if not self._in_body:
            head, separator, body = self._rest.partition(b"\r\n\r\n")
            if not separator:
                return
            assert b" 200 " in head.split(b"\r\n", 1)[0], self._rest
            assert b"chunked" in head
            self._in_body, self._rest = True, body
        while not self.complete:
            size, separator, rest = self._rest.partition(b"\r\n")
            if not separator or len(rest) < int(size, 16) + 2:
                break
            self._body += rest[: int(size, 16)]
            self._rest = rest[int(size, 16) + 2 :]
            self.complete = int(size, 16) == 0
        *whole, self._body = self._body.split(b"\n\n")
        self.events += [json.loads(event.removeprefix(b"data: ")) for event in whole]

    @property
    def text(self) -> str:
        return "".join(event.get("text_output", "") for event in self.events)


def run_generate_streams(
    port: int, model: str, inputs: list[dict], *, stall_seconds: float = 10
) -> list[GenerateStream]:
    """Run all of these at the same time, until they end or none gets anything for `stall_seconds`."""
    streams = []
    with selectors.DefaultSelector() as selector:
        for one in inputs:
            body = json.dumps(one).encode()
            head = (
                f"POST /v2/models/{model}/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            connection.sendall(head.encode() + body)
            connection.setblocking(False)
            streams.append(GenerateStream())
            selector.register(connection, selectors.EVENT_READ, streams[-1])
        last = time.monotonic()
        while selector.get_map() and time.monotonic() - last < stall_seconds:
            for key, _ in selector.select(0.5):
                last = time.monotonic()
                data = key.fileobj.recv(1 << 16)
                key.data.feed(data)
                if key.data.complete or not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    return streams
