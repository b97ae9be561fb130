"""A real runner with the mock engine, honest clients and attackers, and what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from demo.cog_server import CogServer
from shared.artifact import extract_archive
from shared.cog.server import free_port
from shared.errors import CogTritonError
from shared.layout import PROJECT_ROOT
from tests.performance.load import Served, engine_archive
from tests.security.attack import Target
from tests.security.catalogue import ATTACKS
from tests.security.honest import HonestClient
from tests.support.processes import MARK, is_alive, wait_gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from tests.security.honest import Report

HONEST_KEY, HOSTILE_KEY = "sk-honest-1f6a02", "sk-hostile-93bd41"
WITH_KEYS = {
    "API_KEYS": f"honest {HONEST_KEY},hostile {HOSTILE_KEY}",
    "COG_API_NEEDS_KEY": "true",
    "KEY_MAX_REQUESTS": "4",
}
ROUNDS = 10
P99_SECONDS = 2.0
MORE_MEMORY = 20 << 20
_LITTLE = 4 << 20
_COMPARED = 2  # the round after which memory is compared with that after the last
_SETTLE_SECONDS = 20  # at most, until a runner is idle again
_HANDED_BACK_SECONDS = 3  # in which a front hands back what it has freed
_IDLE_SHARE = 0.4  # of a core, which the honest client needs
_TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
_PLACES = ("TRITON_HTTP_ADDRESS", "TRITON_GRPC_ADDRESS")
_LISTENING = "0A"


@dataclass
class Besieged(Served):
    """A runner, and where what concerns it is."""

    port: int = 0
    webhook_port: int = 0
    triton_http_port: int | None = None
    triton_grpc_port: int | None = None
    has_keys: bool = False

    def target(self) -> Target:
        """As its attackers know it."""
        pids = tuple(sorted(self.pids()))
        return Target(
            self.port,
            HOSTILE_KEY if self.has_keys else None,
            self.triton_http_port,
            self.triton_grpc_port,
            pids,
            tuple(sorted(listening_ports(pids))),
            f"http://localhost:{self.webhook_port}/slow",
        )

    def memory(self) -> int:
        """Bytes that all its processes have in memory; what they share counts for each."""
        return sum(self.memory_of_each().values())

    def memory_of_each(self) -> dict[int, int]:
        """The same by process."""
        page, found = os.sysconf("SC_PAGE_SIZE"), {}
        for pid in self.pids():
            with suppress(OSError):
                found[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
        return found

    def names(self) -> dict[int, str]:
        """Its live processes, by their command lines."""
        found = {}
        for pid in filter(is_alive, self.pids()):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found[pid] = command.decode(errors="replace")[:120]
        return found


@contextmanager
def besieged(
    directory: Path, *, prefix: Sequence[str] = (), output: int | None = None, **settings: str
) -> Iterator[Besieged]:
    """A runner with these settings; an empty address of Triton becomes a free port.

    `prefix`: of its command, such as a program that starts another; `output`: where its log goes.
    """
    engine = _engine(directory)
    ports = {name: free_port() for name in _PLACES if settings.get(name) == ""}
    webhook_port, mark = free_port(), os.urandom(8).hex()
    environment = {
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_WEIGHTS": str(engine),
        "WEIGHTS_CACHE": str(directory / "weights"),
        "WEBHOOK_ALLOW": f"http://localhost:{webhook_port}",
        **settings,
        **{name: f"127.0.0.1:{port}" for name, port in ports.items()},
    }
    with (directory / "log").open("ab") as log:
        server = CogServer(
            "runner",
            environment=environment,
            output=log.fileno() if output is None else output,
            prefix=prefix,
        )
    with server:
        try:
            server.wait_ready(120)
        except CogTritonError as error:
            error.add_note((directory / "log").read_text()[-2000:])
            raise
        yield Besieged(
            server.url,
            server.process.pid,
            mark,
            port=server.port,
            webhook_port=webhook_port,
            triton_http_port=ports.get("TRITON_HTTP_ADDRESS"),
            triton_grpc_port=ports.get("TRITON_GRPC_ADDRESS"),
            has_keys="API_KEYS" in settings,
        )
    left = wait_gone(mark)
    assert left == {}, f"still running: {left}"


def _engine(directory: Path) -> Path:
    """A mock of 100 tokens a second for each stream, whose model has a chat template."""
    engine = directory / "engine"
    if not engine.exists():
        archive = engine_archive(directory, tokens_per_second=100, max_seq_len=4096)
        with archive.open("rb") as stream:
            extract_archive(stream, engine, check=lambda _: None, max_bytes=1 << 30)
        (engine / "tokenizer/chat_template.jinja").write_text(_TEMPLATE)
    return engine


def open_files(pids: Iterable[int]) -> set[str]:
    """What the descriptors of these processes are, in the kernel's words; root sees those of others."""
    found = set()
    for pid in pids:
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    found.add(str(link.readlink()))
    return found


def socket_inodes(pids: Iterable[int]) -> set[str]:
    """The numbers of their sockets, by which tables below /proc/net name them."""
    names = filter(lambda name: name.startswith("socket:["), open_files(pids))
    return {name.removeprefix("socket:[").removesuffix("]") for name in names}


def listening_ports(pids: Iterable[int]) -> set[int]:
    """The TCP ports on which these processes listen; root sees those of others."""
    inodes = socket_inodes(pids)
    ports = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            rows = [line.split() for line in Path(table).read_text().splitlines()[1:]]
            ports |= {
                int(row[1].rpartition(":")[2], 16)
                for row in rows
                if row[3] == _LISTENING and row[9] in inodes
            }
    return ports


@dataclass
class Verdict:
    """What attackers did to a runner; `faults` says what must not be."""

    honest: Report
    dead: dict[int, str] = field(default_factory=dict)
    breaches: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    """MiB, after each round or minute."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the attackers counted."""
    grown: dict[str, int] = field(default_factory=dict)
    """MiB by which processes have grown."""
    unfinished: int = 0
    """Rounds that time ended."""

    @property
    def faults(self) -> list[str]:
        """In words."""
        faults = [f"process {pid} died: {name}" for pid, name in self.dead.items()]
        faults += [f"{times} x {what}" for what, times in Counter(self.breaches).most_common(10)]
        if self.honest.lost:
            faults += [f"{self.honest.lost} answers lost or wrong", *self.honest.faults[:5]]
        if (p99 := self.honest.quantile(0.99)) >= P99_SECONDS:
            faults.append(f"p99 of the honest client is {p99:.2f} s")
        if len(self.memory) > 2 and self.memory[-1] > self.most_memory():
            faults.append(f"memory grows: {self.memory} MiB")
        return faults

    def most_memory(self) -> int:
        """MiB that may be in use at the end: little more than after the second round, through which every part
        has gone.
        """
        return self.memory[_COMPARED - 1] + (MORE_MEMORY >> 20)

    def __str__(self) -> str:
        return (
            f"{self.honest}; deaths {len(self.dead)}; memory {self.memory} MiB;"
            f" grown {self.grown}; attackers {dict(self.counts)}; unfinished rounds {self.unfinished}"
        )


class Attacker:
    """One process of tests/security/attacker.py."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def round(self, seconds: float, verdict: Verdict) -> None:
        """Have it do a round, and note what came of it. Raises RuntimeError if it has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{seconds}\n".encode())
        line = await stdout.readline()
        if not line:
            raise RuntimeError("an attacker has ended")
        told = json.loads(line)
        verdict.counts.update(told["counts"])
        verdict.breaches += told["breaches"]
        verdict.unfinished += not told["finished"]


@asynccontextmanager
async def attacking(name: str, target: Target) -> AsyncIterator[Attacker]:
    """A process that attacks when it is told to."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.security.attacker",
        name,
        json.dumps(asdict(target)),
        cwd=PROJECT_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=1 << 20,
    )
    try:
        yield Attacker(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def siege(server: Besieged, name: str, *, round_seconds: float) -> Verdict:
    """Ten rounds of one attack, each of at most that many seconds, with an honest client beside it."""
    before = server.names()
    honest = HonestClient(server.port, HONEST_KEY if server.has_keys else None, server.webhook_port)
    verdict = Verdict(honest.report)
    early: dict[int, int] = {}
    async with honest:
        await asyncio.sleep(1)
        async with attacking(name, server.target()) as attacker:
            for number in range(ROUNDS):
                await attacker.round(round_seconds, verdict)
                if number == ROUNDS - 1:
                    verdict.memory.append(await _idle_memory(server, verdict.most_memory()))
                elif number == _COMPARED - 1:
                    verdict.memory.append(await _idle_memory(server))
                    early = server.memory_of_each()
                else:
                    verdict.memory.append(server.memory() >> 20)
        await asyncio.sleep(1)
    after, late = server.names(), server.memory_of_each()
    verdict.grown = {
        name: grown >> 20
        for pid, name in after.items()
        if (grown := late.get(pid, 0) - early.get(pid, 0)) > _LITTLE
    }
    verdict.dead = {pid: command for pid, command in before.items() if pid not in after}
    return verdict


async def _idle_memory(server: Besieged, most: int | None = None) -> int:
    """MiB, once the runner has done what a round has left to do, or has come down to `most`.

    Others may use the cores, so that a busy runner looks idle.
    """
    used = server.cpu_seconds()
    for _ in range(_SETTLE_SECONDS):
        await asyncio.sleep(1)
        before, used = used, server.cpu_seconds()
        if used - before < _IDLE_SHARE:
            break
    await asyncio.sleep(_HANDED_BACK_SECONDS)
    memory = server.memory() >> 20
    for _ in range(_SETTLE_SECONDS if most is not None else 0):
        if memory <= (most or 0):
            break
        await asyncio.sleep(1)
        memory = server.memory() >> 20
    return memory


@contextmanager
def silent_resolver(directory: Path) -> Iterator[list[str]]:
    """The beginning of a command that runs with a DNS server that never answers; needs root."""
    address = "127.53.53.53"
    (directory / "resolv.conf").write_text(f"nameserver {address}\n")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((address, 53))
        mount = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        yield ["unshare", "--mount", "sh", "-c", mount, str(directory / "resolv.conf")]


def attack_settings(name: str) -> dict[str, str]:
    """What a runner needs so that this attack can be tried."""
    return dict(ATTACKS[name].settings)
