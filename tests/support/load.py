"""Many simultaneous predictions over server-sent events, from one thread, cheap enough not to disturb what it
measures.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

REFUSALS = 100


@dataclass
class Stream:
    """One prediction: its events, each with the second (of the monotonic clock) at which it arrived."""

    inputs: dict
    sent_at: float = 0.0
    ended_at: float = 0.0
    events: list[tuple[float, str, dict]] = field(default_factory=list)
    refusals: int = 0
    _rest: bytes = b""
    _cut: bytes = b""
    _in_body: bool = False

    def feed(self, data: bytes, now: float) -> None:
        if not self._in_body:
            self._rest += data
            head, separator, body = self._rest.partition(b"\r\n\r\n")
            if not separator:
                return
            if b" 200 " not in head.split(b"\r\n", 1)[0]:
                return
            self._in_body, self._rest, data = True, b"", body
        self._rest += self._joined(data)
        *whole, self._rest = self._rest.split(b"\n\n")
        for event in whole:
            if event.startswith(b":"):  # sent in times of silence, so that the connection is kept
                continue
            kind, _, data_line = event.decode().partition("\n")
            self.events.append(
                (now, kind.removeprefix("event: "), json.loads(data_line.removeprefix("data: ")))
            )

    def _joined(self, data: bytes) -> bytes:
        """The body without the marks of its transfer chunks."""
        self._cut += data
        body = b""
        while True:
            size, separator, rest = self._cut.partition(b"\r\n")
            length = int(size or b"0", 16) if separator else 0
            if not separator or len(rest) < length + 2:
                return body
            body += rest[:length]
            self._cut = rest[length + 2 :]

    def was_refused(self) -> bool:
        """Whether Cog had no slot. It also says so, slots or not, when two requests come at one instant."""
        return self._rest.startswith(b"HTTP/1.1 409 ") and self.refusals < REFUSALS

    @property
    def chunks(self) -> list[tuple[float, str]]:
        return [(when, data["chunk"]) for when, kind, data in self.events if kind == "output"]

    @property
    def text(self) -> str:
        return "".join(chunk for _, chunk in self.chunks)

    @property
    def result(self) -> dict:
        """What the last event says, or what the server answered instead of events."""
        if self.events and self.events[-1][1] == "completed":
            return self.events[-1][2]
        return {"status": "cut", "error": self._rest.decode(errors="replace")}


def request(host: str, inputs: dict) -> bytes:
    """What to send for a prediction."""
    body = json.dumps({"input": inputs}).encode()
    head = (
        f"POST /predictions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Load:
    """Streams that run at the same time, each on a connection of its own."""

    def __init__(self, url: str, streams: list[Stream]) -> None:
        self.address = urlsplit(url)
        self.streams = streams
        self.selector = selectors.DefaultSelector()

    def open(self, stream: Stream) -> None:
        connection = socket.create_connection((self.address.hostname, self.address.port), timeout=10)
        stream.sent_at = time.monotonic()
        connection.sendall(request(self.address.netloc, stream.inputs))
        connection.setblocking(False)
        self.selector.register(connection, selectors.EVENT_READ, stream)

    def close(self, key: selectors.SelectorKey) -> None:
        self.selector.unregister(key.fileobj)
        key.fileobj.close()

    def running(self) -> list[selectors.SelectorKey]:
        return list(self.selector.get_map().values())

    def receive(self) -> None:
        for key, _ in self.selector.select(1):
            stream = key.data
            data = key.fileobj.recv(1 << 16)
            now = time.monotonic()
            if data:
                stream.feed(data, now)
                continue
            self.close(key)
            if stream.was_refused():
                stream.refusals += 1
                stream._rest = b""
                time.sleep(0.01)
                self.open(stream)
            else:
                stream.ended_at = now


def run_streams(url: str, inputs: list[dict], timeout: float = 120, during=None) -> list[Stream]:
    """Run all these predictions at the same time; `during(streams)` is called once all of them have some text."""
    load = _Load(url, [Stream(one) for one in inputs])
    deadline = time.monotonic() + timeout
    try:
        for stream in load.streams:
            load.open(stream)
        while load.running():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(load.running())} of {len(load.streams)} streams have not ended")
            load.receive()
            if during and any(stream.ended_at for stream in load.streams):
                ended = [stream.result for stream in load.streams if stream.ended_at]
                raise AssertionError(f"a stream ended before all had some text: {ended}")
            if during and all(len(stream.chunks) >= 3 for stream in load.streams):
                during(load.streams)
                during = None
    finally:
        for key in load.running():
            load.close(key)
        load.selector.close()
    return load.streams
