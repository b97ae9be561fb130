"""Load with faults, for a while: `make soak`. Nothing may be lost, repeated or reordered, hang or leak.

64 clients ask the mock engine, over and over: random lengths, some cancelled, some with stop sequences, some
with bad input. Meanwhile the engine process is killed twice and Triton once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from shared.errors import from_text
from tests.performance.load import runner
from tests.support.load import Stream, request, run_streams
from tests.support.processes import marked, wait_gone

CLIENTS = 64
RATE = 200
LONGEST = 600
STALL_SECONDS = 30
MEMORY_GROWTH = 1.05


def counted(tokens: int) -> str:
    return " ".join(str(number) for number in range(tokens))


class Client(threading.Thread):
    """One client, one prediction after the other."""

    def __init__(self, url: str, seed: int, until: float) -> None:
        super().__init__()
        self.address = urlsplit(url)
        self.random = random.Random(seed)
        self.until = until
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while time.monotonic() < self.until:
            kind = self.random.choices(["whole", "cancelled", "stopped", "bad"], [84, 10, 5, 1])[0]
            tokens = self.random.randint(1, LONGEST)
            try:
                getattr(self, kind)(tokens)
            except (OSError, ValueError, AssertionError) as fault:
                self.faults.append(f"{kind} {tokens}: {fault!r}")

    def whole(self, tokens: int) -> None:
        self.check(self.ask({"prompt": "x", "max_tokens": tokens}), counted(tokens))

    def stopped(self, tokens: int) -> None:
        stop = f" {tokens}"
        self.check(
            self.ask({"prompt": "x", "max_tokens": 2 * LONGEST, "stop_sequences": json.dumps([stop])}),
            # 5 also stops at 50, of which only " 5" has to have been seen: the first that begins with it.
            counted(next(n for n in range(2 * LONGEST) if str(n).startswith(str(tokens)))),
        )

    def bad(self, _tokens: int) -> None:
        stream = self.ask({"prompt": "x", "prompt_template": "{nothing}"})
        assert any(known in stream.result["error"] for known in ("E1003", "At capacity")), stream.result
        self.outcomes["refused"] += 1

    def cancelled(self, tokens: int) -> None:
        stream = self.ask({"prompt": "x", "max_tokens": LONGEST}, leave_after=tokens // 4)
        assert counted(LONGEST).startswith(stream.text), stream.text[-100:]
        self.outcomes["cancelled"] += 1

    def ask(self, inputs: dict, leave_after: int | None = None) -> Stream:
        """Run a prediction to its end, or until so many chunks have come."""
        stream = Stream(inputs)
        address = (self.address.hostname, self.address.port)
        with socket.create_connection(address, timeout=STALL_SECONDS) as connection:
            connection.sendall(request(self.address.netloc, inputs))
            while data := connection.recv(1 << 16):
                stream.feed(data, time.monotonic())
                if leave_after is not None and len(stream.chunks) > leave_after:
                    break
        return stream

    def check(self, stream: Stream, whole: str) -> None:
        """A success has the whole text; a failure has a code, and the text before it is a beginning."""
        result = stream.result
        if result["status"] == "succeeded":
            assert stream.text == whole, f"{len(stream.text)} characters instead of {len(whole)}"
            self.outcomes["whole"] += 1
            return
        if "At capacity" in result["error"]:
            # Cog gives a slot back some time after the answer; that all come back is checked at the end.
            self.outcomes["at capacity"] += 1
            time.sleep(0.2)
            return
        error = from_text(result["error"])
        assert error is not None, result
        assert whole.startswith(stream.text), stream.text[-100:]
        self.outcomes[error.code] += 1
        time.sleep(0.2)


def memory(mark: str) -> int:
    """Resident bytes of all processes of a runner."""
    pages = 0
    for pid in marked(mark):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def kill(mark: str, part: str) -> bool:
    """Kill the process with `part` in its command line; False when there is none, since it is being started."""
    pids = [pid for pid, command in marked(mark).items() if part in command]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return bool(pids)


def wait_slots_free(url: str, seconds: float) -> bool:
    """Whether all slots come back: half as many predictions again as there are clients succeed at once."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        streams = run_streams(url, [{"prompt": "x", "max_tokens": 3}] * (CLIENTS * 3 // 2))
        if all(stream.result["status"] == "succeeded" for stream in streams):
            return True
        time.sleep(0.5)
    return False


def soak(seconds: float) -> list[str]:
    """Run it; return what went wrong."""
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        with runner(Path(temporary), RATE) as server:
            started = time.monotonic()
            clients = [Client(server.url, number, started + seconds) for number in range(CLIENTS)]
            for client in clients:
                client.start()
            kills = {0.3: "runner.engines.process", 0.5: "bin/tritonserver", 0.6: "runner.engines.process"}
            sizes: list[tuple[float, int]] = []
            while any(client.is_alive() for client in clients):
                time.sleep(0.5)
                share = (time.monotonic() - started) / seconds
                sizes.append((share, memory(server.mark)))
                if kills and share > min(kills) and kill(server.mark, kills[min(kills)]):
                    del kills[min(kills)]
            outcomes: Counter[str] = Counter()
            for client in clients:
                outcomes += client.outcomes
                faults += client.faults
            if not wait_slots_free(server.url, 20):
                faults.append("slots were not given back")
            mark = server.mark
        if left := wait_gone(mark):
            faults.append(f"still running: {left}")
    # The first tenth is for warming up: threads and connections are made on demand.
    early = [size for share, size in sizes if 0.1 < share < 0.3]
    late = [size for share, size in sizes if 0.8 < share < 1]
    growth = (sum(late) / len(late)) / (sum(early) / len(early))
    print(f"outcomes: {dict(sorted(outcomes.items()))}; memory, last to first quarter: {growth:.3f}")
    if growth > MEMORY_GROWTH:
        faults.append(f"memory grew by {growth:.3f}")
    if kills:
        faults.append(f"never there to be killed: {list(kills.values())}")
    if outcomes["whole"] < CLIENTS:
        faults.append("hardly anything succeeded")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    faults = soak(parser.parse_args().seconds)
    for fault in faults[:20]:
        print(fault)
    print(f"{len(faults)} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
