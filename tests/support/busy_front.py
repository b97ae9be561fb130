"""The real front, which signals make busy: `python -m tests.support.busy_front`, with the options of the real one.

SIGUSR1: for 12 s each turn of its event loop takes 0.9 s. SIGUSR2: one callback never ends.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

from runner.front.__main__ import main

BUSY_SECONDS = 12
TURN_SECONDS = 0.9


def be_busy(*_signal: object) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + BUSY_SECONDS

    def work() -> None:
        time.sleep(TURN_SECONDS)
        if loop.time() < end:
            loop.call_soon(work)

    loop.call_soon(work)


def hang(*_signal: object) -> None:
    asyncio.get_running_loop().call_soon(time.sleep, 1000)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, be_busy)
    signal.signal(signal.SIGUSR2, hang)
    sys.exit(main())
