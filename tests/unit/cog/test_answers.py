"""The answers of Cog's server that show that it lives."""

from __future__ import annotations

import asyncio

import pytest

from runner.cog import answers
from runner.cog.answers import Answers
from shared.cog.server import free_port


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(answers, "_INTERVAL_SECONDS", 0.02)


async def counted(serve, seconds: float) -> tuple[int, int]:
    """How many answers a server gives within that time, and how many connections it had."""
    connections = []

    async def count(reader, writer):
        connections.append(writer.transport)
        await serve(len(connections), reader, writer)

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    asked = Answers("127.0.0.1", server.sockets[0].getsockname()[1], "/live")
    asking = asyncio.create_task(asked.ask())
    await asyncio.sleep(seconds)
    asking.cancel()
    server.close()
    for _ in range(10):  # a connection that was being taken comes a few passes later
        await asyncio.sleep(0)
    for connection in connections:
        connection.abort()
    await asyncio.sleep(0)
    return asked.count, len(connections)


async def answer(reader, writer, times=1000, length=b"Content-Length: 2\r\n"):
    for _ in range(times):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /live HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n{}" % length)
        await writer.drain()


async def answers_the_first_alone(number, reader, writer):
    """As a server that is flooded: it does not come to take new connections."""
    if number == 1:
        await answer(reader, writer)
    await asyncio.sleep(1000)


async def closes_after_some(_number, reader, writer):
    await answer(reader, writer, times=2)
    writer.close()


async def closes_after_each(_number, reader, writer):
    await answer(reader, writer, times=1, length=b"")
    writer.close()


async def is_slow(_number, reader, writer):
    await asyncio.sleep(0.5)
    await answer(reader, writer)


async def says_nothing(_number, _reader, _writer):
    await asyncio.sleep(1000)


async def hangs_up(_number, _reader, writer):
    writer.transport.abort()


@pytest.mark.parametrize("serve", [answers_the_first_alone, closes_after_some, closes_after_each, is_slow])
def test_a_server_that_answers(serve):
    count, connections = asyncio.run(counted(serve, 1))
    assert count >= 3
    assert (connections == 1) == (serve in (answers_the_first_alone, is_slow))


@pytest.mark.parametrize("serve", [says_nothing, hangs_up])
def test_a_server_that_does_not(serve):
    assert asyncio.run(counted(serve, 0.5))[0] == 0


def test_a_server_that_does_not_listen():
    async def test() -> int:
        asked = Answers("127.0.0.1", free_port(), "/live")
        asking = asyncio.create_task(asked.ask())
        await asyncio.sleep(0.2)
        assert not asking.done()
        asking.cancel()
        return asked.count

    assert asyncio.run(test()) == 0
