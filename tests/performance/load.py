"""What the rows of serving measure with: a runner of the mock engine, its yardsticks, and the client in C."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx2

from builder.pipeline import build
from demo.cog_server import CogServer
from shared.cog.server import free_port, server_environment
from shared.layout import PROJECT_ROOT
from tests.performance.yardsticks.sleeping import Sleeping
from tests.support.processes import MARK, descendants
from tools.docs.cog_schema import SCHEMA_FILE, openapi_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cog import BaseRunner

_HERE = Path(__file__).parent
_TICK = os.sysconf("SC_CLK_TCK")
CORES = len(os.sched_getaffinity(0))
WANTED_CORES = 4
"""What the bounds are for: runner and load generator together."""


def scaled(streams: int) -> int:
    """So many streams on four cores; as many fewer as there are fewer cores."""
    return streams * min(CORES, WANTED_CORES) // WANTED_CORES


def unwind_when_ended() -> None:
    """Have SIGTERM and SIGHUP end this process as an exception does, which ends what it has started."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _unwind)


def _unwind(number: int, _frame: object) -> None:
    for another in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(another, signal.SIG_IGN)  # what is under way already
    sys.exit(128 + number)


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """What is started within runs on that many cores, or on all if there are fewer."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_of_them)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


@dataclass
class Served:
    """A server, and the first of its processes."""

    url: str
    pid: int
    mark: str = ""
    """Of a runner: what tests/support/processes.py finds all its processes by."""
    beside: int | None = None
    """Another process that serves with it, and is not its descendant."""

    def cpu_seconds(self) -> float:
        """What all its processes have used."""
        total = 0
        for pid in self.pids():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total / _TICK

    def pids(self) -> set[int]:
        first = {self.pid} if self.beside is None else {self.pid, self.beside}
        return first.union(*map(descendants, first))


def engine_archive(directory: Path, **config: float) -> Path:
    """An engine.tar of the mock, with these settings of its configuration."""
    name = "-".join(["mock", *(f"{key}-{value:g}" for key, value in config.items())])
    archive = directory / f"{name}.tar"
    if not archive.exists():
        source = directory / f"{name}.yaml"
        source.write_text(json.dumps({"engine": "mock", **config}))
        build(str(source), archive)
    return archive


@contextmanager
def runner(
    directory: Path,
    tokens_per_second: float = 100,
    *,
    step_seconds: float = 0,
    max_seq_len: int = 4096,
    concurrency: int | None = None,
    **settings: str,
) -> Iterator[Served]:
    """A runner with a mock of that pace: each stream by its own clock, or all in one step."""
    archive = engine_archive(
        directory, step_seconds=step_seconds, tokens_per_second=tokens_per_second, max_seq_len=max_seq_len
    )
    mark = os.urandom(8).hex()
    environment = {
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_WEIGHTS": str(archive),
        "WEIGHTS_CACHE": str(directory / "weights"),
        **settings,
    }
    with (directory / "log").open("ab") as log:
        server = CogServer("runner", concurrency=concurrency, environment=environment, output=log.fileno())
    with server:
        server.wait_ready(120)
        yield Served(server.url, server.process.pid, mark)


@contextmanager
def sleeping_predictor(directory: Path, slots: int) -> Iterator[Served]:
    """The yardstick: Cog's server with a predictor that only sleeps and yields."""
    with cog(directory, _HERE / "yardsticks/sleeping.py", Sleeping, slots) as server:
        yield server


@contextmanager
def cog(
    directory: Path, module: Path, predictor: type[BaseRunner], slots: int, **settings: str
) -> Iterator[Served]:
    """Cog's own server with the `predictor` that this module holds."""
    port, package = free_port(), directory / module.stem
    # Without its schema Cog refuses event streams.
    (package / SCHEMA_FILE).parent.mkdir(parents=True, exist_ok=True)
    (package / SCHEMA_FILE).write_text(json.dumps(openapi_schema(predictor.run, streaming=True)))
    shutil.copy(module, package)
    environment = {
        **os.environ,
        **server_environment(port),
        "COG_MAX_CONCURRENCY": str(slots),
        "COG_PREDICT_TYPE_STUB": f"{module.name}:{predictor.__name__}",
        "TMPDIR": str(directory),
        **settings,
    }
    command = [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"]
    with serving(command, environment, directory, package) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _status(url) == "READY", process)
        yield Served(url, process.pid)


@contextmanager
def bare_server(directory: Path, tokens: int, rate: float) -> Iterator[Served]:
    """The yardstick: constant events from a clock."""
    port = free_port()
    module = "tests.performance.yardsticks.bare_server"
    command = [sys.executable, "-m", module, str(port), str(tokens), str(rate)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    with serving(command, environment, directory) as process:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _listens(url), process)
        yield Served(url, process.pid)


@contextmanager
def serving(
    command: Sequence[str], environment: dict[str, str], directory: Path, package: Path = PROJECT_ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """This process, which is ended afterwards; what it says goes to `directory`/log."""
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=package, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def _status(url: str) -> object:
    try:
        return httpx2.get(f"{url}/health-check").json()["status"]
    except httpx2.TransportError:
        return None


def _listens(url: str) -> bool:
    try:
        with httpx2.stream("GET", url):
            return True
    except httpx2.TransportError:
        return False


def wait_until(condition, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """Wait until the condition holds, for a process that lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{process.args!r} does not serve")
        time.sleep(0.05)


@dataclass(frozen=True)
class Streams:
    """What the client in C (client/streams.c) saw; times in seconds, of the streams that came whole."""

    streams: int
    whole: int
    wrong: int
    refused: int
    unfinished: int
    tokens: int
    chunks: int
    seconds: float
    gap: dict[str, float]
    time_to_first_token: list[float]
    request_latency: list[float]
    of_each: int = field(default=0, kw_only=True)
    """Tokens that a stream has."""

    def first_token(self, share: float) -> float:
        """The time (ms) within which that share of the streams had its first token."""
        return 1000 * _quantile(self.time_to_first_token, share)

    def rates(self) -> list[float]:
        """Tokens per second of each stream, from the first to the last."""
        pairs = zip(self.time_to_first_token, self.request_latency, strict=True)
        return [(self.of_each - 1) / (last - first) for first, last in pairs]

    def all_whole(self) -> Streams:
        """This, when every stream is whole."""
        if self.whole != self.streams:
            raise AssertionError(
                f"of {self.streams} streams {self.whole} are whole: {self.wrong} wrong, "
                f"{self.refused} refused, {self.unfinished} unfinished"
            )
        return self


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def median_run(runs: Sequence[Streams], share: float = 0.5) -> float:
    """The median over several bursts of their `first_token` (ms)."""
    return statistics.median(run.first_token(share) for run in runs)


def load(
    server: Served,
    streams: int,
    tokens: int,
    *,
    path: str = "/predictions",
    body: object = None,
    seconds: float = 120,
) -> Streams:
    """Run that many streams at the same time, each of that many tokens."""
    address = urlsplit(server.url)
    if body is None:
        body = {"input": {"prompt": "x", "max_tokens": tokens}}
    command = [_client(), "127.0.0.1", str(address.port), path, str(streams), str(tokens), str(seconds)]
    done = subprocess.run(
        command, input=json.dumps(body).encode(), stdout=subprocess.PIPE, check=True, timeout=seconds + 30
    )
    return Streams(**json.loads(done.stdout), of_each=tokens)


@cache
def _client() -> str:
    """The client, compiled with the compiler of the bridge; it goes when this process ends."""
    directory = tempfile.TemporaryDirectory(prefix="bench-client-")
    atexit.register(directory.cleanup)
    program = Path(directory.name, "streams")
    with tempfile.TemporaryDirectory(prefix="bench-zig-") as zig:
        environment = {
            **os.environ,
            "PYTHONPATH": str(PROJECT_ROOT / ".build/zig"),
            "ZIG_LOCAL_CACHE_DIR": zig,
            "ZIG_GLOBAL_CACHE_DIR": zig,
        }
        command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-o", str(program)]
        subprocess.run([*command, str(_HERE / "client/streams.c")], check=True, env=environment)
    return str(program)
