"""Clients that ask the mock for text over and over, and judge what they get: for `make soak`."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

from shared.errors import FixedBy, from_text

LONGEST = 100
STALL_SECONDS = 60
_MAX_AT_ONCE = 1000
_KINDS = {"whole": 80, "leaves": 10, "cancelled": 5, "stopped": 4, "bad": 1}


def counted(tokens: int) -> str:
    """The text of that many tokens of the mock."""
    return " ".join(str(number) for number in range(tokens))


@dataclass(frozen=True)
class Attempt:
    """One prediction, from the moment it was asked for; what is wrong with it, if anything."""

    kind: str
    began: float
    ended: float
    outcome: str
    fault: str | None = None


class Clients:
    """As many clients at a time as `wanted` says."""

    def __init__(self, url: str, seed: int) -> None:
        address = urlsplit(url)
        self._address = (address.hostname or "", address.port or 0)
        self._random = random.Random(seed)
        self.wanted = 0
        self.attempts: list[Attempt] = []
        """Those that did not simply end well; the others are only counted."""
        self.outcomes: Counter[str] = Counter()
        self._running: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Of the runner."""
        return self._address[1]

    @property
    def running(self) -> int:
        return len(self._running)

    async def keep(self) -> None:
        """Keep as many clients running as are wanted, for ever."""
        while True:
            for number in range(len(self._running), min(self.wanted, _MAX_AT_ONCE)):
                task = asyncio.create_task(self._one(number))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            await asyncio.sleep(0.02)

    async def finish(self, seconds: float) -> None:
        """Let those that run end; raises TimeoutError."""
        self.wanted = 0
        async with asyncio.timeout(seconds):
            while running := list(self._running):
                await asyncio.wait(running)

    async def _one(self, number: int) -> None:
        (kind,) = self._random.choices([*_KINDS], [*_KINDS.values()])
        began = time.monotonic()
        outcome, fault = await self._attempt(kind, f"soak-{number}-{self._random.getrandbits(40)}")
        self.outcomes[outcome] += 1
        if outcome != kind or fault:
            self.attempts.append(Attempt(kind, began, time.monotonic(), outcome, fault))
            await asyncio.sleep(0.2)

    async def _attempt(self, kind: str, name: str) -> tuple[str, str | None]:
        """What became of one prediction, and what is wrong with that whatever happens around it."""
        tokens = self._random.randint(1, LONGEST)
        inputs: dict[str, object] = {"prompt": "x", "max_tokens": tokens}
        whole = counted(tokens)
        if kind == "stopped":
            inputs |= {"max_tokens": LONGEST * 2, "stop_sequences": json.dumps([f" {tokens}"])}
            # 5 also stops at 50, of which only " 5" has to have been seen: the first that begins with it.
            whole = counted(next(n for n in range(1, LONGEST * 2) if str(n).startswith(str(tokens))))
        elif kind == "bad":
            inputs["prompt_template"] = "{nothing}"
        elif kind != "whole":
            inputs["max_tokens"], whole = LONGEST, counted(LONGEST)
        leave_after = tokens // 4 if kind in {"leaves", "cancelled"} else None
        try:
            async with asyncio.timeout(STALL_SECONDS):
                answer = await self._ask(inputs, name, leave_after, cancel=kind == "cancelled")
        except TimeoutError:
            return "stalled", f"{kind}: nothing ended within {STALL_SECONDS} s"
        except OSError:
            return "unreachable", None
        return _judged(kind, answer, whole)

    async def _ask(
        self, inputs: dict[str, object], name: str, leave_after: int | None, *, cancel: bool
    ) -> bytes:
        """The answer to a prediction; after that many chunks leave it, or cancel it with a call."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            body = json.dumps({"id": name, "input": inputs}).encode()
            writer.write(_head("/predictions", len(body)) + body)
            answer = bytearray()
            while data := await reader.read(1 << 16):
                answer += data
                if leave_after is not None and answer.count(b"event: output") > leave_after:
                    leave_after = None
                    if not cancel:
                        return bytes(answer)
                    await self._cancel(name)
            return bytes(answer)
        finally:
            writer.transport.abort()

    async def _cancel(self, name: str) -> None:
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(_head(f"/predictions/{name}/cancel", 0))
            await reader.read()
        finally:
            writer.transport.abort()


def _head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def _judged(kind: str, answer: bytes, whole: str) -> tuple[str, str | None]:
    """The outcome, and what is wrong with it even when something has just been killed."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"200"]:
        error = from_text(body.decode(errors="replace"))
        if not status or error is None:
            return "cut", None if not body else f"{kind}: {answer[:200]!r}"
        return error.code, None
    text, result = _read(_dechunked(body))
    if not whole.startswith(text):
        return "wrong", f"{kind}: lost, repeated or reordered: ...{text[-60:]!r} of ...{whole[-60:]!r}"
    if result is None:
        return ("leaves", None) if kind == "leaves" else ("cut", None)
    match result["status"]:
        case "succeeded":
            right = text == whole and "".join(result["output"]) == whole
            # One that was cancelled at its last token may just as well have ended.
            return kind, None if right else f"{kind}: {len(text)} of {len(whole)} characters"
        case "canceled":
            return kind, None if kind == "cancelled" else f"{kind}: nobody cancelled it"
    error = from_text(result["error"])
    if error is None:
        return "failed", f"{kind}: no code: {result['error']}"
    if kind == "bad":
        return kind if error.code == "E1004" else error.code, None
    fault = f"{kind}: {error}" if error.fixed_by is FixedBy.USER else None
    return error.code, fault


def _dechunked(body: bytes) -> bytes:
    """What was sent in transfer chunks, as far as it came."""
    whole = bytearray()
    while True:
        size, separator, rest = body.partition(b"\r\n")
        if not separator or not size:
            return bytes(whole)
        length = int(size, 16)
        whole += rest[:length]
        body = rest[length + 2 :]


def _read(body: bytes) -> tuple[str, dict | None]:
    """The text of an event stream, and its last event when it has one."""
    chunks, result = [], None
    for block in body.split(b"\n\n")[:-1]:
        kind, _, data = block.partition(b"\ndata: ")
        if kind == b"event: output":
            chunks.append(json.loads(data)["chunk"])
        elif kind == b"event: completed":
            result = json.loads(data)
    return "".join(chunks), result
