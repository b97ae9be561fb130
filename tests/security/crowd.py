"""Many attackers at once, a mix of all attacks, with two honest clients beside them: `make test-security FULL=1`.

It prints a table of what became of the honest requests, with keys and without, and ends with 1 if anything died,
was lost, came late or grew.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.performance.load import on_cores, unwind_when_ended
from tests.security.catalogue import ATTACKS
from tests.security.honest import HonestClient
from tests.security.siege import (
    HONEST_KEY,
    WITH_KEYS,
    Besieged,
    Verdict,
    attack_settings,
    attacking,
    besieged,
    silent_resolver,
)

CORES = 2
_ROUND_SECONDS = 20
_FIRST_SHARE = 0.2  # of the time, until memory is looked at for the first time
_SETTLE_SECONDS = 20


async def crowd(server: Besieged, attackers: int, seconds: float) -> Verdict:
    """So many attackers at once, for that long."""
    before = server.names()
    verdict = Verdict(HonestClient(server.port).report, memory=[server.memory() >> 20])
    async with HonestClient(
        server.port, HONEST_KEY if server.has_keys else None, server.webhook_port
    ) as honest:
        verdict.honest = honest.report
        for share in (_FIRST_SHARE, 1 - _FIRST_SHARE):
            await _attack(server, attackers, share * seconds, verdict)
            verdict.memory.append(await _memory(server))
    after = server.names()
    verdict.dead = {pid: command for pid, command in before.items() if pid not in after}
    return verdict


async def _attack(server: Besieged, attackers: int, seconds: float, verdict: Verdict) -> None:
    names = list(ATTACKS)
    random.Random(1).shuffle(names)
    turns = itertools.cycle(names)
    until = time.monotonic() + seconds

    async def one() -> None:
        while (left := until - time.monotonic()) > 0:
            async with attacking(next(turns), server.target()) as attacker:
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await attacker.round(min(_ROUND_SECONDS, left), verdict)

    await asyncio.gather(*(one() for _ in range(attackers)))


async def _memory(server: Besieged) -> int:
    """MiB, the least within some seconds after the last attacker has left."""
    least = server.memory()
    for _ in range(_SETTLE_SECONDS):
        await asyncio.sleep(1)
        least = min(least, server.memory())
    return least >> 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.security.crowd", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--attackers", type=int, default=20)
    options = parser.parse_args()
    unwind_when_ended()
    settings: dict[str, str] = {}
    for name in ATTACKS:
        settings |= attack_settings(name)
    rows, faults = [], []
    for title, keys in {"no keys": {}, "keys": WITH_KEYS}.items():
        with on_cores(CORES), tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
            directory = Path(temporary)
            prefix = stack.enter_context(silent_resolver(directory)) if os.getuid() == 0 else []
            server = stack.enter_context(besieged(directory, prefix=prefix, **settings, **keys))
            verdict = asyncio.run(crowd(server, options.attackers, options.seconds))
        rows.append(_row(title, verdict))
        faults += [f"{title}: {fault}" for fault in verdict.faults]
        print(f"{title}: {verdict}", flush=True)
    print(
        "| | honest requests | lost or wrong | p50 | p99 | longest | deaths | MiB before, early, at the end |"
    )
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join([*rows, *faults]))
    return int(bool(faults))


def _row(title: str, verdict: Verdict) -> str:
    honest = verdict.honest
    times = " | ".join(f"{1000 * honest.quantile(share):.0f} ms" for share in (0.5, 0.99, 1))
    requests = len(honest.seconds) + honest.lost
    memory = ", ".join(map(str, verdict.memory))
    return f"| {title} | {requests} | {honest.lost} | {times} | {len(verdict.dead)} | {memory} |"


if __name__ == "__main__":
    sys.exit(main())
