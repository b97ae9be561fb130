"""Load with faults, for a while: `make soak`. Nothing may be lost, repeated or reordered, hang or leak.

1 to 1,000 clients ask the mock engine, over and over: random lengths, 10% leave in the middle, 5% cancel, some
send stop sequences, some bad input. Two hostile clients attack throughout. Meanwhile the front, Triton and the engine process are killed and stopped
for a while, several at once; each time predictions work again within 10 s. A prediction that nothing has
disturbed has to end well, and whole; one that was disturbed has a beginning of its text and says with a code
what happened, or its connection was cut because the front is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from tests.performance.load import runner, unwind_when_ended
from tests.security.attack import Target
from tests.security.honest import Report
from tests.security.mix import attack_for_ever, attack_once
from tests.security.siege import Verdict
from tests.support.processes import marked, wait_gone
from tests.support.soak_clients import Clients

if TYPE_CHECKING:
    from tests.performance.load import Served

STEP_SECONDS = 0.05  # 20 tokens a second for each of 1,000 streams: as much as a large GPU makes
SIZES = [1, 16, 128, 512, 1000]
RECOVERY_SECONDS = 10
# What 1,000 streams at once need stays with a process, as room for the next ones: malloc and Python hand little
# of it back. So both figures are taken after a burst of all clients, through which every process has gone, also
# one that a fault has replaced. What differs then has been left by the predictions.
MORE_MEMORY = 20 << 20  # bytes; how large bodies were cut into pieces, and where these lie, is never the same
PEAK, PEAK_SECONDS = (
    0.6,
    30,
)  # this many are served at one instant within this long: some are on their way in or out
MORE_DESCRIPTORS = 16  # of all processes together: connections that are kept
FRONT, TRITON, ENGINE = "runner.front", "bin/tritonserver", "runner.engines.process"
ATTACKERS = 2
ROUND_SECONDS = 300  # more deaths of the front in five minutes, and the next one would come later than that


@dataclass(frozen=True)
class Fault:
    """The processes to kill, and those to stop for that many seconds."""

    kill: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    seconds: float = 0


FAULTS = [
    Fault(kill=(ENGINE,)),
    Fault(kill=(FRONT,)),
    Fault(stop=(ENGINE,), seconds=2),
    Fault(kill=(TRITON,)),
    Fault(stop=(FRONT,), seconds=2),
    Fault(kill=(ENGINE, FRONT)),
    Fault(stop=(TRITON,), seconds=2),
    Fault(kill=(TRITON, FRONT), stop=(ENGINE,), seconds=1),
    Fault(kill=(ENGINE,), stop=(FRONT, TRITON), seconds=1),
]


class Soak:
    """One runner under load, and what went wrong with it."""

    def __init__(self, server: Served, directory: Path, seconds: float) -> None:
        """`directory`: where it puts its own."""
        self.mark = server.mark
        self.directory = directory
        self.seconds = seconds
        self.faults: list[str] = []
        self.disturbed: list[tuple[float, float]] = []
        self.recoveries: list[float] = []
        self.clients = Clients(server.url, seed=1)
        self.target = Target(self.clients.port)
        self.hostile = Verdict(Report())
        self.http = httpx2.AsyncClient(base_url=server.url, timeout=5)

    async def run(self) -> None:
        keeping = asyncio.create_task(self.clients.keep())
        await self.burst()
        before = await self.idle()
        changing = asyncio.create_task(self.change_size())
        attacking = [asyncio.create_task(self.attack(seed)) for seed in range(ATTACKERS)]
        rounds = max(1, round(self.seconds / ROUND_SECONDS))
        pause = self.seconds / (rounds * len(FAULTS) + 1)
        started = time.monotonic()
        for number, fault in enumerate(FAULTS * rounds, 1):
            await asyncio.sleep(max(0, started + number * pause - time.monotonic()))
            await self.disturb(fault)
        await asyncio.sleep(max(0, started + self.seconds - time.monotonic()))
        changing.cancel()
        await self.end_attacks(attacking)
        await self.clients.finish(60)
        await self.burst()
        self.compare(before, await self.idle())
        keeping.cancel()
        await self.http.aclose()
        self.judge()

    async def change_size(self) -> None:
        choice = random.Random(2)
        while True:
            self.clients.wanted = choice.choice(SIZES)
            await asyncio.sleep(choice.uniform(2, 6))

    async def attack(self, seed: int) -> None:
        """One hostile client after another; what they are answered does not matter."""
        await attack_for_ever(self.target, self.hostile, seed)

    async def end_attacks(self, attacking: list[asyncio.Task[None]]) -> None:
        self.faults += ["a hostile client ended by itself" for task in attacking if task.done()]
        for task in attacking:
            task.cancel()
        await asyncio.gather(*attacking, return_exceptions=True)
        print(f"hostile clients were answered: {dict(sorted(self.hostile.counts.items()))}")

    async def burst(self) -> None:
        """All clients together, and all attacks: what a process needs for that many, it has after that."""
        self.clients.wanted = max(SIZES)
        deadline = time.monotonic() + PEAK_SECONDS
        while (running := (await self.gauges())[_RUNNING]) < PEAK * max(SIZES):
            if time.monotonic() > deadline:
                self.faults.append(f"of {max(SIZES)} clients at once only {running:g} were served")
                break
            await asyncio.sleep(0.2)
        await asyncio.sleep(4)
        await self.clients.finish(60)
        await attack_once(self.target, self.hostile)

    async def disturb(self, fault: Fault) -> None:
        began = time.monotonic()
        for part in fault.stop:
            self.signal(part, signal.SIGSTOP)
        for part in fault.kill:
            self.signal(part, signal.SIGKILL)
        await asyncio.sleep(fault.seconds)
        for part in fault.stop:
            self.signal(part, signal.SIGCONT)
        over = time.monotonic()
        recovered = await self.works_again(over + RECOVERY_SECONDS)
        if not recovered:
            self.faults.append(f"{fault}: predictions did not work again within {RECOVERY_SECONDS} s")
        now = time.monotonic()
        self.recoveries.append(now - over)
        # What had begun a moment before may notice a moment later.
        self.disturbed.append((began - 0.1, now + 1))

    def signal(self, part: str, number: int) -> None:
        for pid, command in marked(self.mark).items():
            if part in command:
                os.kill(pid, number)

    async def works_again(self, until: float) -> bool:
        while time.monotonic() < until:
            try:
                answer = await self.http.post(
                    "/predictions", json={"input": {"prompt": "x", "max_tokens": 2}}
                )
                if answer.status_code == httpx2.codes.OK and answer.json()["status"] == "succeeded":
                    return True
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.05)
        return False

    async def idle(self) -> Counter[str]:
        """What the runner holds while nothing runs."""
        deadline = time.monotonic() + 20
        while any((running := await self.gauges()).values()):
            if time.monotonic() > deadline:
                self.faults.append(f"something still runs: {running}")
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(12)  # the front hands back what it has freed
        return self.held()

    async def gauges(self) -> dict[str, float]:
        """How many predictions the front has, and how many requests the engine."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(_GAUGES))
        return {name: float(values[name]) for name in _GAUGES}

    def held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for pid, command in marked(self.mark).items():
            process = Path(f"/proc/{pid}")
            held["processes"] += 1
            held["descriptors"] += len(list((process / "fd").iterdir()))
            size = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            held["bytes"] += size
            held[
                f"bytes of {next((part for part in (FRONT, TRITON, ENGINE) if part in command), 'others')}"
            ] += size
        held["directories"] = len(list(self.directory.iterdir()))
        return held

    def compare(self, before: Counter[str], after: Counter[str]) -> None:
        """Nothing is left of what was."""
        print(f"idle before: {dict(before)}; after: {dict(after)}")
        for what in ("processes", "directories"):
            if after[what] != before[what]:
                self.faults.append(f"{before[what]} {what} became {after[what]}")
        if after["descriptors"] > before["descriptors"] + MORE_DESCRIPTORS:
            self.faults.append(f"{before['descriptors']} descriptors became {after['descriptors']}")
        growth = {
            what: round(after[what] / before[what], 3) for what in sorted(after) if what.startswith("bytes")
        }
        print(f"memory after / before: {growth}")
        if after["bytes"] > before["bytes"] + MORE_MEMORY:
            self.faults.append(f"memory grew by {growth['bytes']}")

    def judge(self) -> None:
        """Undisturbed predictions succeeded."""
        for attempt in self.clients.attempts:
            disturbed = any(
                began <= attempt.ended and attempt.began <= ended for began, ended in self.disturbed
            )
            if attempt.fault or not disturbed:
                what = attempt.fault or f"{attempt.kind}: {attempt.outcome}, though nothing had happened"
                self.faults.append(what)
        print(f"outcomes: {dict(sorted(self.clients.outcomes.items()))}")
        print(f"seconds to recover: {[round(seconds, 1) for seconds in self.recoveries]}")
        if self.clients.outcomes["whole"] < 10 * self.seconds:
            self.faults.append("hardly anything succeeded")


_RUNNING = "cog_triton_running"
_GAUGES = (_RUNNING, "cog_triton_engine_active_requests")


def soak(seconds: float) -> list[str]:
    """Run it; return what went wrong."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        runs = directory / "tmp"
        runs.mkdir()
        with runner(directory, step_seconds=STEP_SECONDS, TMPDIR=str(runs)) as server:
            one = Soak(server, runs, seconds)
            asyncio.run(one.run())
        faults = one.faults
        if left := wait_gone(server.mark):
            faults.append(f"still running: {left}")
        if entries := list(runs.iterdir()):
            faults.append(f"left behind: {entries}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.performance.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=600)
    unwind_when_ended()
    faults = soak(parser.parse_args().seconds)
    for fault, times in Counter(faults).most_common(20):
        print(f"{times} x {fault}")
    print(f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
