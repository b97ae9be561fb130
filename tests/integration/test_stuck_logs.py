"""Nobody takes what a runner logs: it serves and ends as ever, and only log lines are lost."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from shared.cog.server import free_port, server_environment
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import READY_SECONDS
from tests.integration.test_full_disk import NAMESPACE
from tests.support.processes import MARK, descendants, marked, pid_of, wait_gone
from tests.support.waiting import wait_for

SECONDS_TO_END = 10  # of which a second is for the last lines; with the mock, there is nothing to drain
LINES = 3000
LINE = b"%d " + b"x" * 1000 + b"\n"
LOST = re.compile(rb"log lines were lost here, since nothing took them: (\d+)")
FRONT = "runner.front"
SMALL = 'mount -t tmpfs -o size=64k tmpfs "$SMALL" && exec "$@" >>"$SMALL/log" 2>&1'


class Runner:
    def __init__(self, process, mark, url):
        self.process, self.mark, self.url = process, mark, url

    def answers(self) -> bool:
        body = {"input": {"prompt": "x", "max_tokens": 3}}
        with suppress(httpx2.TransportError):
            return (
                httpx2.post(f"{self.url}/predictions", json=body, timeout=5).json().get("output") is not None
            )
        return False

    def log(self, count: int = LINES) -> None:
        """Have the front's standard error written to, as a library in C would."""
        with Path(f"/proc/{pid_of(self.mark, FRONT)}/fd/2").open("wb", buffering=0) as stderr:
            stderr.writelines(LINE % number for number in range(count))

    def end(self) -> float:
        """By SIGTERM; how long that took."""
        began = time.monotonic()
        self.process.terminate()
        assert self.process.wait(30) == 0
        return time.monotonic() - began


@contextmanager
def started(archive, tmp_path, command=(), prefix=(), server="front", **streams):
    port, mark = free_port(), uuid.uuid4().hex
    environment = {
        **os.environ,
        **server_environment(port),
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_WEIGHTS": str(archive),
        "WEIGHTS_CACHE": str(tmp_path / "weights"),
        "SMALL": str(tmp_path / "small"),
        "SERVER": server,
    }
    program = [sys.executable, "-m", "runner.lifecycle", "--host", "127.0.0.1"]
    process = subprocess.Popen([*prefix, *command, *program], env=environment, **streams)
    runner = Runner(process, mark, f"http://127.0.0.1:{port}")
    try:
        wait_for(runner.answers, READY_SECONDS)
        yield runner
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        left = wait_gone(mark)
    assert left == {}


@pytest.fixture
def stuck_pipe():
    """Both ends of a pipe that is full."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(4096))
    os.set_blocking(writing, True)
    yield reading, writing
    for end in (reading, writing):
        with suppress(OSError):
            os.close(end)


def test_a_pipe_that_nobody_reads_delays_nothing(mock_archive, tmp_path, stuck_pipe):
    reading, writing = stuck_pipe
    with started(mock_archive(), tmp_path, stdout=writing, stderr=writing) as runner:
        began = time.monotonic()
        runner.log()
        assert time.monotonic() - began < 20
        assert runner.answers()
        # The reader is back.
        read = bytearray()

        def follow():
            while b"last line" not in read:
                read.extend(os.read(reading, 1 << 16))

        reader = threading.Thread(target=follow, daemon=True)
        reader.start()
        wait_for(lambda: LOST.search(read))
        runner.log(1)
        Path(f"/proc/{runner.process.pid}/fd/2").write_bytes(b"last line\n")
        reader.join(30)
        lost = sum(int(count) for count in LOST.findall(read))
        assert lost > 500
        assert len(re.findall(rb"^\d+ x{1000}$", read, re.MULTILINE)) + lost == LINES + 1
        # It has gone for good.
        runner.log(500)
        assert runner.answers()
        assert runner.end() < SECONDS_TO_END


def test_a_pipe_that_nobody_reads_delays_cogs_server_neither(mock_archive, tmp_path, stuck_pipe):
    _, writing = stuck_pipe
    with started(mock_archive(), tmp_path, server="cog", stdout=writing, stderr=writing) as runner:
        Path(f"/proc/{pid_of(runner.mark, 'cog.server.http')}/fd/1").write_bytes((LINE % 0) * LINES)
        assert runner.answers()
        assert runner.end() < SECONDS_TO_END


def test_a_reader_that_is_gone_delays_nothing(mock_archive, tmp_path, stuck_pipe):
    reading, writing = stuck_pipe
    with started(mock_archive(), tmp_path, stdout=writing, stderr=writing) as runner:
        os.close(reading)
        os.close(writing)
        runner.log(100)
        assert runner.answers()
        assert runner.end() < SECONDS_TO_END


def test_a_full_disk_loses_only_log_lines(mock_archive, tmp_path):
    (tmp_path / "small").mkdir()
    with started(mock_archive(), tmp_path, prefix=NAMESPACE, command=["sh", "-c", SMALL, "sh"]) as runner:
        small = Path(f"/proc/{runner.process.pid}/root{tmp_path}/small")
        runner.log(500)
        assert runner.answers()
        wait_for(lambda: (small / "log").stat().st_size == 1 << 16)
        os.truncate(small / "log", 0)
        wait_for(lambda: LOST.search((small / "log").read_bytes()))
        runner.log(1)
        wait_for(lambda: (small / "log").read_bytes().endswith(LINE % 0))
        text = (small / "log").read_bytes().lstrip(b"\0")
        assert all(line.startswith((b"{", b"0 ")) for line in text.split(b"\n") if line), text
        runner.log(500)
        assert runner.end() < SECONDS_TO_END


def test_streams_that_are_closed_get_no_other_file(mock_archive, tmp_path):
    with started(mock_archive(), tmp_path, command=["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"]) as runner:
        runner.log(100)
        assert runner.answers()
        for pid in {runner.process.pid, *descendants(runner.process.pid)}:
            for number in (1, 2):
                place = str(Path(f"/proc/{pid}/fd/{number}").readlink())
                assert place == os.devnull or place.startswith("pipe:"), marked(runner.mark).get(pid)
        assert runner.end() < SECONDS_TO_END


def test_a_stopped_supervisor_delays_nobody(mock_archive, tmp_path):
    """Until its pipe, of 1 MiB, is full."""
    with started(mock_archive(), tmp_path) as runner:
        os.kill(runner.process.pid, signal.SIGSTOP)
        runner.log(500)
        assert runner.answers()
        os.kill(runner.process.pid, signal.SIGCONT)
        assert runner.answers()
        assert runner.end() < SECONDS_TO_END


def test_a_flood_of_one_client_is_a_bounded_number_of_lines(mock_archive, tmp_path):
    """Of predictions that fail, and of what is no HTTP."""
    with (tmp_path / "log").open("wb") as log, started(mock_archive(), tmp_path, stderr=log) as runner:
        host = httpx2.URL(runner.url)
        began = time.monotonic()
        with httpx2.Client(timeout=20) as client:
            for _ in range(500):
                client.post(f"{runner.url}/predictions", json={"input": {"prompt": "x", "lora": "none"}})
        for _ in range(500):
            with socket.create_connection((host.host, host.port)) as connection:
                connection.sendall(b"no HTTP\r\n\r\n")
                connection.recv(1000)
        seconds = time.monotonic() - began
        wait_for(lambda: b"log lines were left out" in (tmp_path / "log").read_bytes().splitlines()[-1])
        assert runner.end() < SECONDS_TO_END
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) < 2 * (100 + 20 * (seconds + 1)) + 50
    left_out = sum(int(number) for number in re.findall("log lines were left out: ([0-9]+)", "".join(lines)))
    assert 500 < left_out + len(lines) < 550


def test_a_build_waits_for_nobody_who_reads_its_log(tmp_path, stuck_pipe):
    _, writing = stuck_pipe
    (tmp_path / "config.yaml").write_text("engine: mock\n")
    command = [sys.executable, "-m", "cli", "build", "config.yaml", "-o", str(tmp_path / "engine.tar")]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "LOG_LEVEL": "debug"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=writing, timeout=60, check=True
    )
    assert b"mock engine of mock" in done.stdout


def test_the_builders_server_waits_for_nobody_who_reads_its_log(tmp_path, stuck_pipe):
    _, writing = stuck_pipe
    port = free_port()
    environment = {**os.environ, **server_environment(port), "BUILDER_OUTPUT_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "cli.builder_server", "--host", "127.0.0.1"]
    process = subprocess.Popen(command, env=environment, stdout=writing, stderr=writing)
    try:
        runner = Runner(process, "", f"http://127.0.0.1:{port}")
        wait_for(lambda: _builds(runner.url), READY_SECONDS)
        assert runner.end() < SECONDS_TO_END
    finally:
        process.kill()
        process.wait()


def _builds(url: str) -> bool:
    body = {"input": {"config": "data:,engine: mock"}}
    with suppress(httpx2.TransportError):
        return httpx2.post(f"{url}/predictions", json=body, timeout=60).json().get("status") == "succeeded"
    return False
