"""What a bridge says at once is heard, whichever event loop the client runs in."""

from __future__ import annotations

import asyncio
import struct

import pytest
import uvloop

from runner.protocol.feed import FeedFrame
from runner.protocol.frames import PROTOCOL_VERSION
from runner.triton.client import EngineClient

NUMBER = 7


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_the_number_of_a_feed_that_comes_with_the_connection(tmp_path, run):
    async def bridge(_reader, writer):
        body = struct.pack("<BIQ", FeedFrame.OPENED, PROTOCOL_VERSION, NUMBER)
        writer.write(struct.pack("<I", len(body)) + body)

    async def connect():
        server = await asyncio.start_unix_server(bridge, str(tmp_path / "feed"))
        client = await EngineClient.connect(1, tmp_path / "feed", response_timeout=1)
        async with asyncio.timeout(20):
            while client._connection is None or client._connection.number != NUMBER:  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.01)
        await client.close()
        server.close()

    run(connect())
