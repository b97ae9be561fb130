"""An honest client beside the attackers: a mix of requests, one after another, each judged and timed."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests.security.wire import content, exchange, head, post, status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ADDRESS = "127.0.0.2"
"""Another than the attackers': without keys, clients are told apart by their addresses."""
_TOKENS = 8
_TEXT = " ".join(map(str, range(_TOKENS)))
_PAUSE_SECONDS = 0.1
_GIVE_UP_SECONDS = 60
_READ_BYTES = 1 << 16
_FAULTS_KEPT = 1000


@dataclass
class Report:
    """What became of an honest client's requests."""

    by_kind: dict[str, list[float]] = field(default_factory=dict)
    """The seconds of each right answer, by what was asked."""
    faults: list[str] = field(default_factory=list)
    """Answers that are lost or wrong."""
    lost: int = 0

    @property
    def seconds(self) -> list[float]:
        """Those of all right answers."""
        return [seconds for kind in self.by_kind.values() for seconds in kind]

    def quantile(self, share: float) -> float:
        """The seconds within which that share of the right answers came."""
        return _quantile(self.seconds, share)

    def __str__(self) -> str:
        p50, p99, most = (1000 * self.quantile(share) for share in (0.5, 0.99, 1))
        return (
            f"{len(self.seconds) + self.lost} requests, {self.lost} lost, {len(self.faults)} lost or wrong;"
            f" p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {most:.0f} ms"
            f" (p99 of {', '.join(f'{kind} {_quantile(seconds, 0.99):.2f} s' for kind, seconds in self.by_kind.items())})"
        )


def _quantile(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds) or [float("inf")]
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class HonestClient:
    """Asks for texts, tokens and health over and over, as an asynchronous context manager.

    `webhook_port`: where it listens for webhooks, at a name of this machine; None: it asks for none.
    """

    def __init__(self, port: int, key: str | None = None, webhook_port: int | None = None) -> None:
        self.report = Report()
        self._port = port
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._webhook_port = webhook_port
        self._delivered: dict[str, asyncio.Future[bytes]] = {}
        self._number = 0
        self._receiver: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

    async def __aenter__(self) -> Self:
        loops: list[tuple[Callable[[], Awaitable[str | None]], ...]] = [
            (self._chat,),
            (self._prediction,),
            (self._tokenize,),
            (self._ready,),
        ]
        if self._webhook_port is not None:
            self._receiver = await asyncio.start_server(self._receive, "127.0.0.1", self._webhook_port)
            loops[1] = (self._prediction, self._webhook)
        self._tasks = [asyncio.create_task(self._repeat(kinds)) for kinds in loops]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for the answers that are still to come."""
        self._ending = True
        await asyncio.gather(*self._tasks)
        if self._receiver is not None:
            self._receiver.close()

    async def _repeat(self, kinds: tuple[Callable[[], Awaitable[str | None]], ...]) -> None:
        while not self._ending:
            for kind in kinds:
                name, began = kind.__name__.strip("_"), time.monotonic()
                fault = await kind()
                seconds = time.monotonic() - began
                if fault is not None:
                    self.report.lost += 1
                    if len(self.report.faults) < _FAULTS_KEPT:
                        self.report.faults.append(f"{name} after {seconds:.1f} s: {fault}")
                else:
                    self.report.by_kind.setdefault(name, []).append(seconds)
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask(self, request: bytes) -> tuple[str | None, bytes]:
        """What is wrong with the answer's status, and its body."""
        answer = await exchange(self._port, request, seconds=_GIVE_UP_SECONDS, source=_ADDRESS)
        if status(answer) != 200:
            return f"status {status(answer)}: {content(answer)[:300].decode(errors='replace')}", b""
        return None, content(answer)

    async def _chat(self) -> str | None:
        asked = {
            "messages": [{"role": "user", "content": "1 2 3"}],
            "max_tokens": _TOKENS,
            "stream": True,
        }
        fault, body = await self._ask(post("/v1/chat/completions", self._port, asked, self._headers))
        if fault is not None:
            return fault
        events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
        if not events or events[-1] != b"[DONE]":
            return f"the stream was cut off: {body[-200:]!r}"
        parts = [json.loads(event)["choices"][0]["delta"].get("content") or "" for event in events[:-1]]
        return None if "".join(parts) == _TEXT else f"wrong text {''.join(parts)!r}"

    async def _prediction(self) -> str | None:
        asked = {"input": {"prompt": "x", "max_tokens": _TOKENS}}
        fault, body = await self._ask(post("/predictions", self._port, asked, self._headers))
        return fault or _wrong_prediction(body)

    async def _webhook(self) -> str | None:
        self._number += 1
        name = f"honest-{self._number}"
        delivered = self._delivered[name] = asyncio.get_running_loop().create_future()
        asked = {
            "id": name,
            "input": {"prompt": "x", "max_tokens": _TOKENS},
            "webhook": f"http://localhost:{self._webhook_port}/",
            "webhook_events_filter": ["completed"],
        }
        try:
            fault, body = await self._ask(post("/predictions", self._port, asked, self._headers))
            fault = fault or _wrong_prediction(body)
            return fault or _wrong_prediction(await asyncio.wait_for(delivered, _GIVE_UP_SECONDS))
        except TimeoutError:
            return "the webhook did not come"
        finally:
            del self._delivered[name]

    async def _tokenize(self) -> str | None:
        asked = {"messages": [{"role": "user", "content": "1 2 3"}]}
        fault, body = await self._ask(post("/tokenize", self._port, asked, self._headers))
        if fault is not None:
            return fault
        return None if json.loads(body)["count"] == 3 else f"wrong tokens {body[:200]!r}"

    async def _ready(self) -> str | None:
        fault, _ = await self._ask(head("GET", "/health/ready", self._port, {"Connection": "close"}))
        return fault

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A webhook."""
        try:
            first = await reader.readuntil(b"\r\n\r\n")
            (length,) = [
                int(line.partition(b":")[2])
                for line in first.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ]
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
            await writer.drain()
            found = self._delivered.get(json.loads(body)["id"])
            if found is not None and not found.done():
                found.set_result(body)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass  # it is asked for again
        finally:
            writer.close()


def _wrong_prediction(body: bytes) -> str | None:
    answer = json.loads(body)
    if answer["status"] != "succeeded":
        return f"{answer['status']}: {answer.get('error')}"
    text = "".join(answer["output"])
    return None if text == _TEXT else f"wrong text {text!r}"
