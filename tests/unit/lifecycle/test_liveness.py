"""Which servers count as hung."""

from __future__ import annotations

import asyncio

import pytest

from runner.lifecycle import liveness
from shared.cog.server import free_port


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(liveness, "_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(liveness, "_DEADLINE_SECONDS", 0.2)


async def hangs(serve, seconds: float) -> tuple[bool, int]:
    """Whether a server is found to hang within that time, and how many connections it had."""
    connections = []

    async def count(reader, writer):
        connections.append(writer.transport)
        await serve(len(connections), reader, writer)

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with asyncio.timeout(seconds):
            await liveness.wait_until_hung("127.0.0.1", port, "/live", tls=False)
    except TimeoutError:
        return False, len(connections)
    finally:
        server.close()
        for _ in range(10):  # a connection that was being taken comes a few passes later
            await asyncio.sleep(0)
        for connection in connections:
            connection.abort()
        await asyncio.sleep(0)
    return True, len(connections)


async def answer(reader, writer, times=1000, length=b"Content-Length: 2\r\n"):
    for _ in range(times):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /live HTTP/1.1\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n%b\r\n{}" % length)
        await writer.drain()


async def answers_the_first_alone(number, reader, writer):
    """As a server that is flooded: it refuses new connections, or does not come to take them."""
    if number == 1:
        await answer(reader, writer)
    await asyncio.sleep(1000)


async def closes_after_some(_number, reader, writer):
    await answer(reader, writer, times=2)
    writer.close()


async def closes_after_each(_number, reader, writer):
    await answer(reader, writer, times=1, length=b"")
    writer.close()


async def says_nothing(_number, _reader, _writer):
    await asyncio.sleep(1000)


async def speaks_something_else(_number, _reader, writer):
    writer.write(b"220 ready\r\n\r\n")
    await asyncio.sleep(1000)


async def hangs_up(_number, _reader, writer):
    """As a front with more connections than it may have."""
    writer.transport.abort()


@pytest.mark.parametrize("serve", [answers_the_first_alone, closes_after_some, closes_after_each, hangs_up])
def test_a_server_that_answers(serve):
    hung, connections = asyncio.run(hangs(serve, 1))
    assert not hung
    assert (connections == 1) == (serve is answers_the_first_alone)


@pytest.mark.parametrize("serve", [says_nothing, speaks_something_else])
def test_a_server_that_does_not(serve):
    hung, _ = asyncio.run(hangs(serve, 20))
    assert hung


def test_a_server_that_does_not_listen():
    async def test():
        async with asyncio.timeout(20):
            await liveness.wait_until_hung("127.0.0.1", free_port(), "/live", tls=False)

    asyncio.run(test())


def test_a_server_that_has_stopped_answering_is_asked_over_a_new_connection_too():
    async def stopped(number, reader, writer):
        if number == 1:
            await answer(reader, writer, times=2)
        await asyncio.sleep(1000)

    assert asyncio.run(hangs(stopped, 20)) == (True, 2)
