"""A server of event streams at a constant rate, with known faults, which `cog-triton perf` must find.

    python -m tests.support.perf_server PORT '{"rate": 25, "stalled_every": 50}'

POST of any path but /v1/... is Cog's API; /v1/completions and /v1/chat/completions are OpenAI's; /v1/predictions is
Replicate's, whose events are at /stream/... GET of /asked and /running tells how many requests came, and how many run. The text is the mock's: 0 1 2 ... One clock serves all streams: at each step each gets one event.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import ClassVar

import orjson
import uvloop

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Faults:
    """What goes wrong; `..._every`: with each so-manieth request, 0: with none."""

    rate: float = 100
    """Tokens a second of each stream."""
    stalled_every: int = 0
    stall_seconds: float = 2
    """In the middle."""
    hung_every: int = 0
    """No token comes after the middle, and no end."""
    lost_every: int = 0
    """The token in the middle is not sent."""
    failed_every: int = 0
    """500."""
    cut_every: int = 0
    """The connection ends in the middle."""
    slow_first: int = 0
    """So many requests after the start wait for their first token."""
    slow_seconds: float = 1
    most_running: int = 0
    """More wait for a place, first come first served."""


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Stream(asyncio.Protocol):
    faults: Faults
    requests = 0
    running: ClassVar[dict[_Stream, None]] = {}
    waiting: ClassVar[dict[_Stream, None]] = {}

    def connection_made(self, transport):
        self.transport = transport
        self.data = b""

    def data_received(self, data):
        self.data += data
        head, separator, body = self.data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0
        )
        if not separator or len(body) < length:
            return
        self.data = b""
        verb, path, _ = head.split(b" ", 2)
        if path.startswith(b"/stream/"):
            self.begin(path, {"input": {"max_tokens": int(path[8:])}})
        elif path == b"/v1/predictions":
            asked = orjson.loads(body)
            if b"Authorization: Bearer secret" not in head or asked["version"] != "abc":
                self.answer(b"401 Unauthorized", b'{"detail": "You did not pass an authentication token"}')
                return
            host = self.transport.get_extra_info("sockname")
            stream = f"http://{host[0]}:{host[1]}/stream/{asked['input']['max_tokens']}"
            self.answer(b"201 Created", orjson.dumps({"id": "x", "urls": {"stream": stream}}))
        elif verb == b"GET":
            told = {b"/health-check": {}, b"/asked": self.requests, b"/running": len(self.running)}
            self.answer(b"200 OK" if path in told else b"404 Not Found", orjson.dumps(told.get(path, {})))
        else:
            self.begin(path, orjson.loads(body))

    def answer(self, status, body):
        lines = [b"HTTP/1.1 " + status, b"Content-Type: application/json", b"Content-Length: %d" % len(body)]
        self.transport.write(b"\r\n".join([*lines, b"", body]))

    def begin(self, path, asked):
        cls, faults = type(self), self.faults
        cls.requests += 1
        number = cls.requests
        self.is_replicate = path.startswith(b"/stream/")
        self.is_openai, self.is_chat = path.startswith(b"/v1/"), path.endswith(b"/chat/completions")
        inputs = asked if self.is_openai else asked["input"]
        self.sent, self.length = 0, inputs["max_tokens"]

        def is_hit(every):
            return every and number % every == 0

        if is_hit(faults.failed_every):
            self.answer(b"500 Internal Server Error", b'{"error": "out of luck"}')
            return
        middle = self.length // 2
        self.pause_at, self.pause = (
            (middle, faults.stall_seconds) if is_hit(faults.stalled_every) else (-1, 0)
        )
        if is_hit(faults.hung_every):
            self.pause_at, self.pause = middle, 1e9
        self.lost_at = middle if is_hit(faults.lost_every) else -1
        self.cut_at = middle if is_hit(faults.cut_every) else -1
        self.due = asyncio.get_running_loop().time() + (
            faults.slow_seconds if number <= faults.slow_first else 0
        )
        self.transport.write(_OK)
        place = (
            cls.running if not faults.most_running or len(cls.running) < faults.most_running else cls.waiting
        )
        place[self] = None

    def step(self, now):
        if now < self.due:
            return
        number, self.sent = self.sent, self.sent + 1
        if number == self.cut_at:
            self.transport.close()
            return
        if number != self.lost_at:
            self.transport.write(_chunk(self.event(f" {number}" if number else "0")))
        if number == self.pause_at:
            self.due = now + self.pause
        if self.sent == self.length:
            self.transport.write(_chunk(self.ending()) + b"0\r\n\r\n")
            self.leave()

    def leave(self):
        cls = type(self)
        cls.running.pop(self, None)
        cls.waiting.pop(self, None)
        while cls.waiting and len(cls.running) < self.faults.most_running:
            first = next(iter(cls.waiting))
            del cls.waiting[first]
            cls.running[first] = None

    def event(self, text):
        if self.is_replicate:
            return b"event: output\ndata: %b\n\n" % text.encode()
        if not self.is_openai:
            return b'event: output\ndata: {"chunk":"%b","index":%d}\n\n' % (text.encode(), self.sent)
        said = {"delta": {"content": text}} if self.is_chat else {"text": text}
        return b"data: %b\n\n" % orjson.dumps({"choices": [{"index": 0, **said}]})

    def ending(self):
        if self.is_replicate:
            return b"event: done\ndata: {}\n\n"
        if not self.is_openai:
            metrics = {"output_token_count": self.length - (self.lost_at >= 0), "input_token_count": 1}
            return b"event: completed\ndata: %b\n\n" % orjson.dumps(
                {"status": "succeeded", "metrics": metrics}
            )
        usage = {"prompt_tokens": 1, "completion_tokens": self.length}
        return b"data: %b\n\ndata: [DONE]\n\n" % orjson.dumps({"choices": [], "usage": usage})

    def connection_lost(self, _):
        self.leave()


async def _serve(port: int, faults: Faults) -> None:
    _Stream.faults = faults
    loop = asyncio.get_running_loop()
    await loop.create_server(_Stream, "127.0.0.1", port, backlog=4096)
    step = loop.time()
    while True:
        step = max(step + 1 / faults.rate, loop.time() - 1)
        await asyncio.sleep(step - loop.time())
        now = loop.time()
        for stream in list(_Stream.running):
            stream.step(now)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), Faults(**json.loads(sys.argv[2]))))
