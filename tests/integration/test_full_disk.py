"""The file system of the run directory fills up, or cannot be written to any more, while a runner serves."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from shared.cog.server import free_port, server_environment
from tests.integration.conftest import READY_SECONDS
from tests.support.processes import MARK, marked, pid_of, wait_gone
from tests.support.waiting import wait_for

# A small file system of its own, in a mount namespace that ends with the runner.
NAMESPACE = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
MOUNT = 'mount -t tmpfs -o size=256k,nr_inodes=100 tmpfs "$TMPDIR" && exec "$@"'
TEXT = "0 1 2"
FRONT, TRITON, ENGINE = "runner.front", "bin/tritonserver", "runner.engines.process"


class Runner:
    def __init__(self, process, mark, url, directory, log):
        self.process, self.mark, self.url, self.log = process, mark, url, log
        self.directory = Path(f"/proc/{process.pid}/root{directory}")

    def status(self, path: str) -> int:
        try:
            return httpx2.get(f"{self.url}{path}", timeout=20).status_code
        except httpx2.TransportError:
            return 0

    def answer(self) -> str:
        """The text of an answer, or what came in its place."""
        body = {"input": {"prompt": "x", "max_tokens": 3}}
        try:
            answer = httpx2.post(f"{self.url}/predictions", json=body, timeout=60)
        except httpx2.TransportError as problem:
            return repr(problem)
        return "".join(answer.json().get("output") or [answer.text])

    def answers(self) -> bool:
        return self.answer() == TEXT

    def fill(self) -> None:
        """Until neither a byte nor a name fits in."""
        with (self.directory / "filler").open("wb", buffering=0) as file:
            assert _until_full(lambda _: file.write(bytes(4096)))
        assert _until_full(lambda number: (self.directory / f"filler-{number}").touch())

    def remount(self, how: str) -> None:
        enter = ["nsenter", "--target", str(self.process.pid), "--mount"]
        if os.getuid() != 0:
            enter.append("--user")
        command = ["mount", "-o", f"remount,{how}", os.fspath(self.directory).partition("/root")[2]]
        subprocess.run([*enter, *command], check=True)


def _until_full(write) -> bool:
    for number in range(1000):
        try:
            write(number)
        except OSError as problem:
            return problem.errno == errno.ENOSPC
    return False


@pytest.fixture
def runner(mock_archive, tmp_path_factory):
    with started(mock_archive(), tmp_path_factory.mktemp("d")) as one:  # short: a socket's path is
        yield one


@contextmanager
def started(archive, tmp_path):
    port, mark, directory = free_port(), uuid.uuid4().hex, tmp_path / "small"
    directory.mkdir()
    environment = {
        **os.environ,
        **server_environment(port),
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_WEIGHTS": str(archive),
        "WEIGHTS_CACHE": str(tmp_path / "weights"),
        "TMPDIR": str(directory),
    }
    command = ["sh", "-c", MOUNT, "sh", sys.executable, "-m", "runner.lifecycle", "--host", "127.0.0.1"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*NAMESPACE, *command], env=environment, stdout=log, stderr=log)
    one = Runner(process, mark, f"http://127.0.0.1:{port}", directory, tmp_path / "log")
    try:
        wait_for(lambda: one.status("/health/ready") == 200, READY_SECONDS)
        yield one
    finally:
        process.terminate()
        process.wait(30)
        left = wait_gone(mark)
    assert left == {}


def kill(runner, part: str) -> None:
    before = pid_of(runner.mark, part)
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: before not in marked(runner.mark))


def is_back(runner) -> bool:
    return runner.status("/health/ready") == 200 and runner.answers()


def test_serving_goes_on_in_a_full_one_whatever_dies(runner):
    assert list(runner.directory.iterdir()), "the run directory is somewhere else"
    runner.fill()
    assert runner.answer() == TEXT
    for part in (FRONT, ENGINE, TRITON):
        kill(runner, part)
        wait_for(lambda: is_back(runner))


def test_serving_goes_on_where_nothing_can_be_written_and_triton_comes_back_when_it_can(runner):
    runner.remount("ro")
    assert runner.answer() == TEXT
    for part in (FRONT, ENGINE):
        kill(runner, part)
        wait_for(lambda: is_back(runner))
    # A Triton that starts opens the feed's socket.
    kill(runner, TRITON)
    wait_for(
        lambda: (
            "E2406 BridgeMisconfigured: The engine bridge cannot start: Read-only file system. Make the directory"
            in runner.log.read_text()
        )
    )
    assert runner.status("/health/ready") == 503
    assert runner.status("/health/live") == 200
    assert not runner.answers()
    runner.remount("rw")
    wait_for(lambda: is_back(runner))
