"""Plays a load against a server: when each first text came, and how many tokens."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.model import MODEL_NAME
from tests.gpu.workloads.loads import SCHEMA, system_prompt, text_of

if TYPE_CHECKING:
    from tests.gpu.workloads.loads import Load, Request

_TEXT = re.compile(rb'"(?:content|text|chunk)": ?"[^"]')
_TOKENS = re.compile(rb'"(?:completion_tokens|output_token_count)": ?([0-9]+)')
_CONTENT = re.compile(rb'"(?:content|text|chunk)": ?("(?:[^"\\]|\\.)*")')
_TAIL = 1 << 15  # bytes that surely hold the usage


@dataclass
class Played:
    """What came of one request."""

    turn: int
    due: float
    first: float | None = None
    ended: float = 0.0
    tokens: int = 0
    status: int = 0

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.first is not None and self.tokens > 0


@dataclass
class _Stream(asyncio.Protocol):
    """One request on a connection of its own."""

    head: bytes
    played: Played
    done: asyncio.Future[None]
    parts: list[bytes] = field(default_factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(self.head)  # type: ignore[attr-defined] # it is a transport of a connection

    def data_received(self, data: bytes) -> None:
        if self.played.first is None:
            # A match may be cut between two reads: the one before is looked at again.
            seen = data if not self.parts else self.parts[-1] + data
            if _TEXT.search(seen):
                self.played.first = time.monotonic()
        self.parts.append(data)

    def connection_lost(self, _: Exception | None) -> None:
        self.played.ended = time.monotonic()
        whole = b"".join(self.parts)
        self.played.status = int(whole[9:12] or 0) if whole.startswith(b"HTTP/1.1 ") else 0
        if count := _TOKENS.findall(whole[-_TAIL:]):
            self.played.tokens = int(count[-1])
        if not self.done.done():
            self.done.set_result(None)

    def text(self) -> str:
        """The whole text."""
        return "".join(json.loads(part) for part in _CONTENT.findall(b"".join(self.parts)))


def openai_ask(request: Request, messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    """Path and body of OpenAI's API: token ids, or messages if there are any."""
    body: dict[str, Any] = {
        "model": MODEL_NAME,
        "max_tokens": request.output_tokens,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.structured:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": SCHEMA, "strict": True},
        }
    else:
        body["ignore_eos"] = True
    if messages:
        return "/v1/chat/completions", body | {"messages": messages}
    return "/v1/completions", body | {"prompt": list(request.words)}


def cog_ask(request: Request, messages: list[dict[str, str]]) -> tuple[str, dict[str, Any]]:
    """Path and body of Cog's API: text, or messages if there are any."""
    inputs: dict[str, Any] = {
        "max_tokens": request.output_tokens,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
    }
    if request.structured:
        inputs["structured_output"] = json.dumps({"json": SCHEMA})
    if messages:
        return "/predictions", {"input": inputs | {"messages": json.dumps(messages)}}
    return "/predictions", {"input": inputs | {"prompt": text_of(request.words)}}


async def play(load: Load, port: int, ask: Any) -> list[Played]:
    """Every request of a load, each when it is due."""
    loop = asyncio.get_running_loop()
    system = {"role": "system", "content": system_prompt()}
    start = time.monotonic() + 0.2

    async def one(request: Request, messages: list[dict[str, str]], played: Played) -> str:
        path, body = ask(request, messages)
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAccept: text/event-stream\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        done: asyncio.Future[None] = loop.create_future()
        stream = _Stream(head.encode() + content, played, done)
        await asyncio.sleep(max(0, played.due - time.monotonic()))
        transport, _ = await loop.create_connection(lambda: stream, "127.0.0.1", port)
        await done
        transport.close()
        return stream.text() if messages else ""

    async def user(requests: tuple[Request, ...]) -> list[Played]:
        messages = [system] if load.is_chat else []
        all_played = []
        due = start
        for turn, request in enumerate(requests, 1):
            due = max(due, start + request.at)
            played = Played(turn, due)
            if load.is_chat:
                messages.append({"role": "user", "content": text_of(request.words).strip()})
            answer = await one(request, messages, played)
            if load.is_chat:
                messages.append({"role": "assistant", "content": answer})
            all_played.append(played)
            due = time.monotonic()
        return all_played

    return [played for user_s in await asyncio.gather(*map(user, load.users)) for played in user_s]
