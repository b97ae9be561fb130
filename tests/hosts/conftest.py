"""Hosts that are namespaces: the first drives an engine process, the others join it."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from runner.engines.hosts.settings import HostsSettings
from runner.protocol.frames import ReadyFrame, StartFailedFrame
from shared.layout import PROJECT_ROOT
from tests.hosts.namespaces import Namespace, two_namespaces
from tests.support.engine_process import driven
from tests.support.processes import wait_gone
from tests.support.temporary import own_temporary_files

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "a secret of the hosts of a test"
PORT = 5700
LOST_WITHIN = 10  # seconds; docs/several-hosts.md says so


@pytest.fixture(autouse=True)
def temporary():
    with own_temporary_files() as directory:
        yield directory


@pytest.fixture
def namespaces():
    with two_namespaces() as made:
        yield made


@pytest.fixture
def mark():
    """Of all processes of a test; none of them may be left."""
    mark = uuid.uuid4().hex
    yield mark
    assert wait_gone(mark) == {}


def address_of(host: Namespace) -> str:
    return f"{host.address}:{PORT}"


@contextmanager
def first_host(
    host: Namespace,
    engine: Path,
    kind: str,
    python: str,
    log: Path,
    *,
    seconds: float = 120,
    mpi_hosts: str | None = None,
    **environment: str,
):
    """An engine process on this host, and the driver of its socket."""
    told = HostsSettings(
        address_of(host), gpus=1, seconds=seconds, mpi_hosts=mpi_hosts, secret=SECRET.encode()
    )

    def command(fd: str) -> list[str]:
        return host.command(
            *(python, "-m", "runner.engines.process", "--kind", kind),
            *("--engine-dir", str(engine), "--socket-fd", fd),
        )

    with (
        log.open("a") as file,
        driven(command, PROJECT_ROOT, file, **told.environment(), **environment) as (process, driver),
    ):
        driver.connection.settimeout(60)
        yield process, driver


@contextmanager
def joined(command: list[str], log: Path, **environment: str):
    """A process that joins; it is ended by SIGTERM."""
    with log.open("a") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=file, env={**os.environ, **environment}, cwd=PROJECT_ROOT
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(20) in {0, 1, -signal.SIGKILL}
        finally:
            process.kill()
            process.wait()


def expect_ready(driver, log: Path) -> None:
    try:
        frame = next(driver.frames, None)
    except TimeoutError:
        frame = None
    assert isinstance(frame, ReadyFrame), f"{frame}\n{log.read_text()}"


def told(driver) -> str:
    """Why the engine process ends."""
    return next(frame.text for frame in driver.frames if isinstance(frame, StartFailedFrame))
