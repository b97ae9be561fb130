"""What the front has freed goes back to the machine."""

from __future__ import annotations

import asyncio
import contextlib

from runner.front.freed_memory import keep_handing_back, resident

PIECE, PIECES = 50_000, 4000  # bytes; smaller than what glibc maps by itself


def test_memory_below_what_is_still_used_is_handed_back():
    async def left() -> int:
        before = resident()
        task = asyncio.create_task(keep_handing_back(0.05))
        await asyncio.sleep(0)
        pieces = [bytearray(b"x" * PIECE) for _ in range(PIECES)]
        used = pieces[:: PIECES // 10]
        pieces.clear()
        assert resident() > before + PIECE * PIECES // 2, "the C library has handed it back by itself"
        await asyncio.sleep(0.3)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert len(used) == 10
        return resident() - before

    assert asyncio.run(left()) < 20 << 20
