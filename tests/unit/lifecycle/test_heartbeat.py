"""The turns of an event loop, seen from another process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import uvloop

from runner.lifecycle.heartbeat import Heartbeat
from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

_TURNS_AND_STOPS = """
import asyncio, sys, time
from runner.lifecycle.heartbeat import Heartbeat

async def run():
    Heartbeat(int(sys.argv[1])).beat(asyncio.get_running_loop())
    await asyncio.sleep(1)
    time.sleep(100)

asyncio.run(run())
"""


def test_another_process_sees_the_loop_turn_and_stop():
    fd = Heartbeat.create()
    heartbeat = Heartbeat(fd)
    command = [sys.executable, "-c", _TURNS_AND_STOPS, str(fd)]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, pass_fds=[fd]) as process:
        try:
            wait_for(lambda: heartbeat.count >= 3)
            time.sleep(1.5)
            stopped = heartbeat.count
            time.sleep(1)
            assert heartbeat.count == stopped
        finally:
            process.kill()
    os.close(fd)


def test_a_busy_loop_that_turns_is_seen_to_turn():
    async def busy() -> int:
        loop = asyncio.get_running_loop()
        heartbeat = Heartbeat(Heartbeat.create())
        heartbeat.beat(loop)
        end = loop.time() + 1.5

        def work() -> None:
            time.sleep(0.2)
            if loop.time() < end:
                loop.call_soon(work)
                loop.call_soon(work)  # more each turn: it never has nothing to do

        work()
        await asyncio.sleep(1.4)
        return heartbeat.count

    assert uvloop.run(busy()) >= 2
