"""What a stream that waits holds, and whether anything is left of those that have ended."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from tests.performance.load import load, runner
from tests.performance.row import Row
from tests.support.processes import descendants

IDLE = 1000
PREDICTIONS = 100_000
AT_ONCE = 500
WARM = PREDICTIONS // 4
GROWTH = 1.05


def memory(pid: int) -> int:
    """Bytes that this process and those below it hold for themselves."""
    total = 0
    for one in {pid, *descendants(pid)}:
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))
    return 1024 * total


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        idle = _idle(directory)
        with runner(directory, tokens_per_second=1e6) as server:
            sizes = []
            for done in range(0, PREDICTIONS, AT_ONCE):
                if done == WARM:
                    sizes.append(memory(server.pid))
                load(server, AT_ONCE, 1).all_whole()
            sizes.append(memory(server.pid))
    return [
        Row(f"memory of one of {IDLE} streams that wait for a token", idle / 1000, "kB", at_most=64),
        Row(f"memory after {PREDICTIONS} predictions / after {WARM}", sizes[1] / sizes[0], at_most=GROWTH),
    ]


def _idle(directory: Path) -> float:
    """Bytes for each of that many streams that have no token yet."""
    with runner(directory, tokens_per_second=0.01) as server:
        load(server, IDLE, 1)  # what is made once for that many exists
        before = memory(server.pid)
        waiting = threading.Thread(target=load, args=(server, IDLE, 5), kwargs={"seconds": 10}, daemon=True)
        waiting.start()
        time.sleep(6)
        held = memory(server.pid) - before
        waiting.join()
    return held / IDLE
