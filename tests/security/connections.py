"""Attacks with connections: many requests in one, many connections, slow ones, and answers that nobody reads."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

from tests.security.attack import Attack
from tests.security.wire import HOST, connected, count_answers, head, post

_SMALL_BUFFER = 4096
_HELD_SECONDS = 3


class PipelinedUpgrades(Attack):
    """1a: 330 requests that offer another protocol, in one write; 301 of these packets."""

    packets, requests = 301, 330

    async def round(self) -> None:
        offer = head(
            "GET", "/health/live", self.target.port, {"Connection": "Upgrade", "Upgrade": "websocket"}
        )
        last = head("GET", "/health/live", self.target.port, {"Connection": "close"})
        data = offer * self.requests + last

        async def one(_: int) -> None:
            self.counts["answers"] += await count_answers(self.target.port, data)

        await self.repeat(self.packets, 4, one)


class PipelinedRequests(Attack):
    """1b: 14,000 requests in a row on each of 40 connections."""

    connections, requests = 40, 14_000

    async def round(self) -> None:
        last = head("GET", "/", self.target.port, {"Connection": "close"})
        data = head("GET", "/", self.target.port) * self.requests + last

        async def one(_: int) -> None:
            self.counts["answers"] += await count_answers(self.target.port, data, 600)

        await self.repeat(self.connections, self.connections, one)


class UnreadAnswers(Attack):
    """Trains of requests whose answers nobody reads: 100 connections of 2,000 requests for the schema."""

    async def round(self) -> None:
        data = head("GET", "/openapi.json", self.target.port) * 2000
        await self._hold([data] * 100)

    async def _hold(self, requests: list[bytes]) -> None:
        """Send each over a connection of its own, read nothing, and leave after a while."""
        async with AsyncExitStack() as stack:
            for number, data in enumerate(requests):
                with suppress(OSError):
                    _, writer = await stack.enter_async_context(
                        connected(self.target.port, receive_buffer=_SMALL_BUFFER)
                    )
                    writer.write(data)
                    self.counts["connections"] += 1
                if number % 50 == 0:
                    await asyncio.sleep(0.05)
            await asyncio.sleep(_HELD_SECONDS)


class UnreadStreams(UnreadAnswers):
    """500 streams of text that nobody reads."""

    async def round(self) -> None:
        events = {"Accept": "text/event-stream", **self.target.authorization}
        slow = {"input": {"prompt": "<tokens_per_second> 2", "max_tokens": 1000}}
        await self._hold([post("/predictions", self.target.port, slow, events)] * 500)


class UnreadReplays(UnreadAnswers):
    """500 readers of one long prediction's events, none of which reads."""

    async def round(self) -> None:
        path = "/predictions/long-one"
        asked = {"input": {"prompt": "<tokens_per_second> 9999", "max_tokens": 4000}}
        put = post(path, self.target.port, asked, {"Prefer": "respond-async", **self.target.authorization})
        await self.ask(put.replace(b"POST", b"PUT", 1))
        await asyncio.sleep(1)
        events = {"Accept": "text/event-stream", **self.target.authorization}
        await self._hold([head("GET", path, self.target.port, events)] * 500)


class IdleConnections(UnreadAnswers):
    """5,000 connections that say nothing."""

    async def round(self) -> None:
        await self._hold([b""] * 5000)


class SlowHeads(Attack):
    """500 connections that send a header, a few bytes at a time."""

    async def round(self) -> None:
        async with AsyncExitStack() as stack:
            writers = []
            for _ in range(500):
                with suppress(OSError):
                    _, writer = await stack.enter_async_context(connected(self.target.port))
                    writer.write(f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Slow: ".encode())
                    writers.append(writer)
            for _ in range(24):
                for writer in writers:
                    if not writer.is_closing():
                        writer.write(b"a")
                await asyncio.sleep(0.5)


class SlowBodies(Attack):
    """64 bodies of almost 16 MiB, of which the last byte never comes."""

    async def round(self) -> None:
        size = (16 << 20) - 64
        start = post(
            "/v1/completions", self.target.port, b'{"prompt":"' + b"x" * size, self.target.authorization
        )

        async def one(_: int) -> None:
            with suppress(OSError):
                async with connected(self.target.port) as (_reader, writer):
                    writer.write(start[:-1])
                    with suppress(TimeoutError):
                        async with asyncio.timeout(5):
                            await writer.drain()
                    await asyncio.sleep(_HELD_SECONDS)
                    self.counts["bodies"] += 1

        await self.repeat(64, 64, one)


class HugeHeaders(Attack):
    """5,000 requests with 60 kB of headers: one long, many short, and identifiers that are too long."""

    async def round(self) -> None:
        long = "a" * 60_000
        many = {f"X-{number}": "a" for number in range(4000)}
        variants = [
            {"X-Request-Id": long},
            {"Traceparent": long},
            {"Tracestate": long},
            {"Authorization": f"Bearer {long}"},
            many,
        ]
        requests = [
            head("GET", "/health/ready", self.target.port, {**one, "Connection": "close"}) for one in variants
        ]
        await self.repeat(5000, 20, lambda number: self.ask(requests[number % len(requests)]))
