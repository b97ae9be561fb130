"""Looking up names that clients name."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from runner.front import resolver
from runner.front.resolver import Resolver


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    return request.param


@asynccontextmanager
async def resolving():
    one = Resolver()
    _OTHERS.update(children())
    try:
        yield one
    finally:
        one.close()
    assert processes() == []


_OTHERS: set[str] = set()
"""Children that other tests have started."""


def children() -> list[str]:
    return Path("/proc/thread-self/children").read_text().split()


def processes() -> list[str]:
    """Those that the resolver has started."""
    return [child for child in children() if child not in _OTHERS]


@pytest.mark.parametrize(
    ("host", "address"),
    [("192.0.2.7", "192.0.2.7"), ("2130706433", "127.0.0.1"), ("2001:db8::7", "2001:db8::7")],
)
def test_an_address_needs_no_process(run, host, address):
    async def main():
        async with resolving() as names:
            assert await names.addresses(host, "") == [address]
            assert processes() == []

    run(main())


def test_a_name_is_looked_up_as_the_system_does(run):
    async def main():
        async with resolving() as names:
            assert {"127.0.0.1", "::1"} & set(await names.addresses("localhost", ""))
            (first,) = processes()
            with pytest.raises(socket.gaierror):
                await names.addresses("no-such-host.invalid", "")
            assert processes() == [first]

    run(main())


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "a" * 8000, "\u2603" * 60])
def test_what_is_no_name_is_unknown(host):
    async def main():
        async with resolving() as names:
            with pytest.raises(socket.gaierror):
                await names.addresses(host, "")

    asyncio.run(main())


def test_a_name_that_is_never_answered_is_given_up(run, names, monkeypatch):
    monkeypatch.setattr(resolver, "_SECONDS", 1)
    names["a.test"] = "stuck"

    async def main():
        async with resolving() as one:
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await one.addresses("a.test", "")
            assert 0.9 < time.monotonic() - began < 3
            assert processes() == []

    run(main())


def test_a_look_up_that_nobody_waits_for_is_ended(run, names):
    names["a.test"] = "stuck"

    async def main():
        async with resolving() as one:
            task = asyncio.create_task(one.addresses("a.test", ""))
            while not processes():  # noqa: ASYNC110 - a process tells nobody
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert processes() == []

    run(main())


def test_a_process_ends_itself_when_it_is_not_ended(names, monkeypatch):
    names["a.test"] = "stuck"
    monkeypatch.setattr(resolver, "_SECONDS", 0)

    async def main():
        process = resolver._Process()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(process.ask("a.test"), 10)
        process.end()

    asyncio.run(main())


def test_one_who_names_what_is_never_answered_delays_no_other(run, names):
    names["a.test"], names["b.test"] = "stuck", "192.0.2.7"

    async def main():
        async with resolving() as one:
            stuck = [asyncio.create_task(one.addresses("a.test", "one")) for _ in range(40)]
            await asyncio.sleep(0.3)
            assert len(processes()) == 8
            began = time.monotonic()
            assert await one.addresses("b.test", "another") == ["192.0.2.7"]
            assert time.monotonic() - began < 2
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)

    run(main())
