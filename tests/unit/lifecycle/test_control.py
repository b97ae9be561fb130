"""What the supervisor and its processes tell each other arrives whole, each message by itself."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from runner.lifecycle.control import (
    Connection,
    Drain,
    Drained,
    EngineAddress,
    Prepared,
    Ready,
    SettingsRead,
    SetupFailed,
    Shutdown,
    encode,
)

ADDRESS = EngineAddress("mock", "/engine", "/run/metrics", "/run/feed", ["/run/metrics"])
MESSAGES = [
    SettingsRead(1, 2.5, 3),
    ADDRESS,
    Prepared(["tritonserver", "--x=ü"], {"A": "b"}, ADDRESS, ["python"]),
    SetupFailed("E4201 WeightsNotFound: no \u2028 line\n"),
    Ready(),
    Drain(0.5),
    Drained(),
    Shutdown(),
]


def received(*parts: bytes, pause: float = 0) -> list:
    """What arrives of these bytes, after which the other end closes."""

    async def run() -> list:
        near, far = socket.socketpair()
        connection = Connection(*await asyncio.open_connection(sock=near))
        for part in parts:
            far.sendall(part)
            await asyncio.sleep(pause)
        far.close()
        messages = [message async for message in connection]
        connection.close()
        return messages

    return asyncio.run(run())


def test_two_messages_in_one_read_are_two():
    assert received(b"".join(map(encode, MESSAGES))) == MESSAGES


def test_a_message_in_many_reads_is_one():
    data = encode(MESSAGES[2])
    assert received(*(data[i : i + 7] for i in range(0, len(data), 7)), pause=0.001) == [MESSAGES[2]]


@pytest.mark.parametrize("rest", [b"", b"\x05", encode(Ready())[:-1], struct.pack("<I", 1 << 30)])
def test_what_is_cut_off_or_too_long_ends_the_connection(rest):
    assert received(encode(Ready()) + rest) == [Ready()]


def test_a_message_to_an_end_that_is_gone_is_no_error():
    async def run() -> None:
        near, far = socket.socketpair()
        connection = Connection(*await asyncio.open_connection(sock=near))
        far.close()
        for _ in range(3):
            connection.send(Drained())
            await asyncio.sleep(0.01)
        assert [message async for message in connection] == []
        connection.close()

    asyncio.run(run())
