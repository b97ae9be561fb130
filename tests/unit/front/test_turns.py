from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack

import pytest

from runner.front.turns import Turns
from tests.support.front import running

BURST = 200


def test_a_burst_begins_a_few_at_a_time_in_order_and_the_dead_take_no_turn():
    async def burst():
        turns, order, passes = Turns(2), [], []

        async def begin(number):
            await turns.take()
            order.append(number)

        tasks = [asyncio.create_task(begin(number)) for number in range(7)]
        await asyncio.sleep(0)
        passes.append(len(order))
        tasks[2].cancel()
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            passes.append(len(order))
        return order, [after - before for before, after in zip([0, *passes], passes, strict=False)]

    order, begun = asyncio.run(burst())
    assert order == [0, 1, 3, 4, 5, 6]
    assert max(begun) == 2


def test_one_alone_does_not_wait():
    async def alone():
        turns, passed = Turns(1), []
        for _ in range(3):
            asyncio.get_running_loop().call_soon(passed.append, None)
            await turns.take()
            passed.append("taken")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return passed

    assert asyncio.run(alone()) == ["taken", None] * 3


@pytest.fixture(scope="module")
def busy(engine_directory):
    """A front with 5 ms of other work in each pass of its event loop."""
    with running(engine_directory) as front:

        def work() -> None:
            time.sleep(0.005)
            front.loop.call_soon(work)

        front.loop.call_soon_threadsafe(work)
        yield front


def ask(front, method: str, path: str, body: object = None) -> socket.socket:
    content = b"" if body is None else json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", front.port), timeout=20)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


@pytest.mark.parametrize(
    "what", [("GET", "/health/live"), ("GET", "/metrics"), ("POST", "/predictions/x/cancel")]
)
def test_who_asks_how_it_is_or_cancels_does_not_wait_behind_a_burst(busy, what):
    before = len(busy.client.requests)
    sent = threading.Event()
    with ExitStack() as stack:
        stack.callback(sent.set)
        # The front comes to them when all have been sent, however slow the machine.
        busy.loop.call_soon_threadsafe(sent.wait, 60)
        one = {"input": {"prompt": "a", "max_tokens": 1}}
        burst = [stack.enter_context(ask(busy, "POST", "/predictions", one)) for _ in range(BURST)]
        asked = stack.enter_context(ask(busy, *what))
        sent.set()
        assert asked.recv(1 << 16).startswith(b"HTTP/1.1 ")
        assert len(busy.client.requests) - before < BURST / 2
        for connection in burst:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
