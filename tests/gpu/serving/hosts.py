"""One runner on two hosts of one machine, each with one of its GPUs: `cog-triton serve` and `cog-triton join`.

The hosts are network namespaces (tests/hosts/namespaces.py), each with a host name and shared memory of its own, by
which NCCL and vLLM tell hosts apart. Where the kernel has no veth they share the machine's network, and have the rest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tests.gpu.serving.greedy import against, greedy_texts
from tests.gpu.serving.load import ROOT, bursts, free_port, measure, openai_body, server
from tests.gpu.serving.machine import (
    below,
    compute_processes,
    host_of,
    multicast_is_off,
    processes_of,
    transports,
)
from tests.gpu.serving.model import Burst
from tests.hosts.namespaces import Namespace, two_namespaces
from tests.support.under_load import gpu_memory, lose

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gpu.serving.load import Report

_PORT = 5700
_COG_TRITON = [sys.executable, "-m", "cli"]
_END_SECONDS = 20


class Neighbour(Namespace):
    """A host that shares the machine's network."""

    __slots__ = ()

    def command(self, *words: str) -> list[str]:
        own = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        return ["unshare", "--uts", "--mount", "--", "sh", "-c", own, self.name, *words]

    @contextmanager
    def inside(self) -> Iterator[None]:
        yield


@contextmanager
def two_hosts(report: Report) -> Iterator[tuple[Namespace, Namespace]]:
    """Two hosts with a network between them."""
    with ExitStack() as stack:
        try:
            first, second = stack.enter_context(two_namespaces())
            told = "two network namespaces, a veth between them"
        except (OSError, subprocess.CalledProcessError) as problem:
            first, second = Neighbour("first", "127.0.0.1", "lo"), Neighbour("second", "127.0.0.1", "lo")
            told = f"the machine's own, as namespaces cannot be connected: {problem}"
        report.add("network", told=told)
        yield first, second


class Joined:
    """The second host: `cog-triton join`, and all that it starts."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._command, self._environment, self._log = command, environment, log
        self._process: subprocess.Popen[bytes] | None = None
        self._host: Path | None = None

    def start(self) -> None:
        with self._log.open("ab") as file:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=os.environ | self._environment,
                stdout=file,
                stderr=file,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._host = host_of(self._process.pid)

    def processes(self) -> dict[int, str]:
        return {} if self._host is None else processes_of(self._host)

    def kill(self, part: str = "") -> None:
        """Kill all its processes at once, or those with this in their command line."""
        for pid, name in self.processes().items():
            if part in name:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def end(self) -> int:
        """Send SIGTERM, and kill what is left; the exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self.kill()
        return self._process.wait()


def run_hosts(options: argparse.Namespace, report: Report, client: Path, runner: dict[str, str]) -> None:
    """Both APIs, greedy tokens, a host that is lost under load and joins again, and a worker there that is killed."""
    with two_hosts(report) as (first, second):
        port = free_port()
        address = f"{first.address}:{_PORT}"
        common = runner | {
            "HOSTS_SECRET": os.urandom(16).hex(),
            "HOSTS_TIMEOUT": "120",
            "NCCL_MNNVL_ENABLE": "0",
        }
        engine = runner["COG_WEIGHTS"]
        serve = [*_COG_TRITON, "serve", engine, "--host", "0.0.0.0", "--port", str(port)]
        joined = Joined(
            second.command(*_COG_TRITON, "join", address, engine),
            common | {"CUDA_VISIBLE_DEVICES": "1"},
            options.log / "join.log",
        )
        environment = common | {"CUDA_VISIBLE_DEVICES": "0", "HOSTS_ADDRESS": address}
        url = f"http://127.0.0.1:{port}/health/ready"
        started = time.monotonic()
        try:
            joined.start()
            with (
                first.inside(),
                server(first.command(*serve), environment, options.log / "serve.log", url) as pid,
            ):
                report.add("start", seconds=round(time.monotonic() - started, 1))
                report.add("multicast is off", processes=multicast_is_off(below(pid) | joined.processes()))
                report.add("nccl", **transports(options.log))
                with report.step("bursts"):
                    bursts(report, client, port, pid, map(Burst, options.streams * options.repeat))
                with report.step("greedy"):
                    if told := against(options.expected, greedy_texts(port)):
                        report.add("greedy", **told)
                _losses(options, report, client, port, pid, joined)
        finally:
            report.add("joined host ended", status=joined.end())
    time.sleep(2)
    report.add("after the end", gpu_processes=compute_processes(), gpu_memory_mib=gpu_memory())


def _losses(
    options: argparse.Namespace, report: Report, client: Path, port: int, pid: int, joined: Joined
) -> None:
    count, tokens = (8, 300) if options.rehearse else (64, 600)
    body: dict[str, Any] = openai_body() | {"max_tokens": tokens, "ignore_eos": True}

    def after() -> None:
        figures = measure(client, port, "/v1/completions", openai_body(), max(options.streams), pid)
        report.add("runner, openai", **figures)

    with report.step("joined host killed"):
        told = asyncio.run(lose(port, joined.kill, body, count, joined.start))
        report.add("joined host killed", **told)
        after()
    with report.step("worker of the joined host killed"):
        told = asyncio.run(lose(port, lambda: joined.kill("VLLM::Worker"), body, count))
        report.add("worker of the joined host killed", **told)
        after()
