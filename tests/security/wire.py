"""HTTP as an attacker writes it: bytes to a port on loopback, and what comes back. Standard library only."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HOST = "127.0.0.1"
NO_ANSWER = 0
"""In place of a status: the connection ended first, or time was up."""
ANSWER_SECONDS = 60
_READ_BYTES = 1 << 16
_INTERIM = b"HTTP/1.1 100"
_GONE = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


def head(method: str, path: str, port: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The head of a request that a server has no reason to refuse."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{port}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def post(
    path: str, port: int, body: bytes | Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> bytes:
    """A whole request with a JSON body, after whose answer the connection ends."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    length = {"Content-Type": "application/json", "Content-Length": str(len(content)), "Connection": "close"}
    return head("POST", path, port, length | dict(headers or {})) + content


@asynccontextmanager
async def connected(
    port: int, *, receive_buffer: int | None = None, source: str = HOST
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection from `source` that is aborted at the end. Raises OSError."""
    one = socket.socket()
    one.setblocking(False)
    if receive_buffer is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    try:
        if source != HOST:
            one.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(one, (HOST, port))
        reader, writer = await asyncio.open_connection(sock=one)
    except BaseException:
        one.close()
        raise
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def exchange(
    port: int,
    data: bytes,
    *,
    seconds: float = ANSWER_SECONDS,
    half_close: bool = False,
    source: str = HOST,
) -> bytes:
    """All that comes back until the other side closes; what has come, when time is up or the connection breaks."""
    answer = bytearray()
    with suppress(TimeoutError, *_GONE):
        async with asyncio.timeout(seconds), connected(port, source=source) as (reader, writer):
            sending = asyncio.create_task(_send(writer, data, half_close=half_close))
            try:
                while piece := await reader.read(_READ_BYTES):
                    answer += piece
            finally:
                sending.cancel()
    return _final(bytes(answer))


def _final(answer: bytes) -> bytes:
    """Without interim answers, which a server may send while a client waits."""
    while answer.startswith(_INTERIM):
        answer = answer.partition(b"\r\n\r\n")[2]
    return answer


async def _send(writer: asyncio.StreamWriter, data: bytes, *, half_close: bool) -> None:
    with suppress(*_GONE):
        writer.write(data)
        await writer.drain()
        if half_close:
            writer.write_eof()


async def count_answers(port: int, data: bytes, seconds: float = ANSWER_SECONDS) -> int:
    """How many answers come back to a train of requests, the last of which closes; they are not kept."""
    found, tail = 0, b""
    with suppress(TimeoutError, *_GONE):
        async with asyncio.timeout(seconds), connected(port) as (reader, writer):
            sending = asyncio.create_task(_send(writer, data, half_close=False))
            try:
                while piece := await reader.read(_READ_BYTES):
                    joined = tail + piece
                    found += joined.count(b"HTTP/1.1 ") - tail.count(b"HTTP/1.1 ")
                    tail = joined[-8:]
            finally:
                sending.cancel()
    return found


def status(answer: bytes) -> int:
    """The first status of what came back, or NO_ANSWER."""
    words = answer[:16].split(b" ", 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else NO_ANSWER


def content(answer: bytes) -> bytes:
    """The body of an answer, without transfer chunks."""
    first, _, body = answer.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in first.lower():
        return body
    whole = bytearray()
    while True:
        size, separator, rest = body.partition(b"\r\n")
        if not separator or not size:
            return bytes(whole)
        length = int(size, 16)
        whole += rest[:length]
        body = rest[length + 2 :]
