"""What a supervisor does for Triton and for the HTTP server, here a front of a few lines."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from runner.lifecycle.supervisor import SECONDS_TO_END
from shared.cog.server import free_port
from shared.errors import EngineGaveUp
from shared.layout import PROJECT_ROOT
from shared.signals import ENDS
from tests.support.busy_front import BUSY_SECONDS
from tests.support.processes import MARK, marked, pid_of, wait_gone
from tests.support.waiting import wait_for

TRITON, ENGINE, FRONT = "bin/tritonserver", "runner.engines.process", "stub_front"
SECRETS = {
    "HF_TOKEN": "hf_x",
    "API_KEYS": "k",
    "AWS_SECRET_ACCESS_KEY": "a",
    "VLLM_API_KEY": "v",
    "WHATEVER": "w",
}


class Runner:
    def __init__(self, directory: Path, temporary: Path, *arguments: str, **settings: str) -> None:
        self.mark = os.urandom(8).hex()
        self.port = free_port()
        self.temporary = temporary
        self.log = directory / "log"
        environment = {MARK: self.mark, "ENGINE_ENVIRONMENT": MARK, "TMPDIR": str(self.temporary), **settings}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.stub_runner", str(self.port), *arguments],
                cwd=PROJECT_ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )

    def get(self, path: str = "/", timeout: float = 5) -> dict:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=timeout).json()
        except httpx2.TransportError:
            return {"status": "NONE"}

    def wait(self, status: str) -> dict:
        return wait_for(lambda: (state := self.get())["status"] == status and state)

    def pid(self, part: str) -> int:
        return pid_of(self.mark, part)

    def kill(self, part: str, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid(part), number)


@pytest.fixture
def temporary():
    """A place for temporary files with a short path: it must do for that of a Unix socket."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def start(tmp_path, temporary, mock_archive):
    """`start(*arguments, setting=value, ...)`: a runner; after it nothing of it may be left."""

    @contextmanager
    def run(*arguments: str, **settings: str):
        settings = {"COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(tmp_path / "cache"), **settings}
        runner = Runner(tmp_path, temporary, *arguments, **settings)
        try:
            yield runner
        finally:
            runner.process.terminate()
            try:
                runner.process.wait(20)
            finally:
                left = wait_gone(runner.mark)
                runner.process.kill()
        assert left == {}
        assert not list(runner.temporary.iterdir())

    return run


@pytest.fixture
def ready(start):
    with start() as runner:
        runner.wait("READY")
        yield runner


def test_a_front_that_dies_is_replaced_and_the_engine_stays(ready):
    before, engine, triton = ready.get(), ready.pid(ENGINE), ready.pid(TRITON)
    ready.kill(FRONT)
    wait_for(lambda: ready.get().get("pid", before["pid"]) != before["pid"])
    assert ready.wait("READY")["address"] == before["address"]
    assert (ready.pid(ENGINE), ready.pid(TRITON)) == (engine, triton)


def test_nobody_is_refused_while_a_front_is_replaced(ready):
    front = ready.pid(FRONT)
    ready.kill(FRONT)
    with ExitStack() as connections:
        clients, fronts = [], {front}
        while fronts <= {front}:
            for _ in range(5):
                client = socket.create_connection(("127.0.0.1", ready.port), 5)
                clients.append(connections.enter_context(client))
            fronts = {pid for pid, command in marked(ready.mark).items() if FRONT in command}
            time.sleep(0.01)
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert {client.makefile("rb").readline() for client in clients} == {b"HTTP/1.1 200 OK\r\n"}
    assert fronts == {ready.pid(FRONT)}


def test_once_the_front_has_ended_nobody_waits_for_another(ready):
    ready.process.terminate()
    wait_for(lambda: not any(FRONT in command for command in marked(ready.mark).values()))
    with pytest.raises(ConnectionError), socket.create_connection(("127.0.0.1", ready.port), 1) as client:
        client.recv(1)
    assert ready.process.wait(20) == 0


def test_a_front_that_hangs_is_replaced_and_the_engine_stays(start):
    with start("--hung-seconds", "2") as runner:
        runner.wait("READY")
        front, engine = runner.pid(FRONT), runner.pid(ENGINE)
        runner.get("/hang", timeout=0.1)
        wait_for(lambda: runner.get(timeout=0.5)["status"] == "READY")
        assert runner.pid(FRONT) != front
        assert runner.pid(ENGINE) == engine
        assert "has made no progress for 2 s" in runner.log.read_text()


def test_a_triton_that_dies_comes_back_where_it_was(ready):
    before, triton, engine = ready.get(), ready.pid(TRITON), ready.pid(ENGINE)
    ready.kill(TRITON)
    wait_for(lambda: not {triton, engine} & marked(ready.mark).keys())
    # Not even a zombie is left of what it left behind.
    wait_for(lambda: not Path(f"/proc/{engine}").exists())
    wait_for(lambda: any(TRITON in command for command in marked(ready.mark).values()))
    assert ready.get() == before  # the front was not disturbed


def test_before_the_first_ready_an_http_server_that_dies_too_often_ends_the_runner(start):
    deaths = 0
    with start(STUB_FRONT_LOADS_FOR="1000") as runner:
        while runner.process.poll() is None:
            pids = [pid for pid, command in marked(runner.mark).items() if FRONT in command]
            if pids and runner.get()["status"] != "NONE":
                try:
                    os.kill(pids[0], signal.SIGKILL)
                except ProcessLookupError:  # it was the one before, on its way out
                    continue
                deaths += 1
        assert (runner.process.returncode, deaths) == (1, 6)
        assert "E4008 ServerDiedTooOften" in runner.log.read_text()


def metric(runner: Runner, name: str) -> float:
    lines = httpx2.get(f"http://127.0.0.1:{runner.port}/metrics", timeout=5).text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name} ")]
    return float(line.split()[1])


def test_no_number_of_deaths_ends_a_runner_that_has_served(start):
    """Six within five minutes did, for good."""
    with start("--front", "runner.front") as runner:

        def wait_ready(front_restarts: int) -> None:
            expected = {"status": "READY", "front_restarts": front_restarts}
            wait_for(lambda: runner.get("/health/ready") == expected)

        wait_ready(0)
        engine = runner.pid(ENGINE)
        for death in range(1, 8):
            runner.kill("runner.front --control")
            wait_ready(death)
        assert runner.get("/health-check")["front_restarts"] == 7
        assert metric(runner, "cog_triton_front_restarts_total") == 7
        assert runner.pid(ENGINE) == engine


@pytest.mark.parametrize("part", [FRONT, TRITON])
def test_a_machine_that_has_no_room_for_a_process_does_not_end_what_has_served(start, tmp_path, part):
    """The supervisor ended with E1000."""
    full = tmp_path / "full"
    with start(STUB_RUNNER_FULL=str(full)) as runner:
        runner.wait("READY")
        before = runner.pid(part)
        full.touch()
        runner.kill(part)
        wait_for(lambda: "Resource temporarily unavailable" in runner.log.read_text())
        full.unlink()
        wait_for(
            lambda: any(part in command for pid, command in marked(runner.mark).items() if pid != before)
        )
        runner.wait("READY")


BUSY_FRONT, BUSY = ("--front", "tests.support.busy_front"), "busy_front --control"


def test_a_front_that_is_only_busy_is_not_replaced(start):
    """Each turn of its loop takes 0.9 s, so it answers late; twice later than 5 s, and it was killed."""
    with start(*BUSY_FRONT, "--hung-seconds", "3") as runner:
        wait_for(lambda: runner.get("/health/ready")["status"] == "READY")
        front, began = runner.pid(BUSY), time.monotonic()
        runner.kill(BUSY, signal.SIGUSR1)
        while time.monotonic() < began + BUSY_SECONDS + 2:
            assert runner.pid(BUSY) == front
            time.sleep(0.1)
        assert runner.get("/health/ready") == {"status": "READY", "front_restarts": 0}


def test_a_front_that_is_stuck_in_one_callback_is_replaced(start):
    with start(*BUSY_FRONT, "--hung-seconds", "3") as runner:
        wait_for(lambda: runner.get("/health/ready")["status"] == "READY")
        runner.kill(BUSY, signal.SIGUSR2)
        wait_for(lambda: runner.get("/health/ready", 0.5) == {"status": "READY", "front_restarts": 1})
        assert "has made no progress for 3 s, with 0.0 s of CPU time" in runner.log.read_text()


REFUSAL = "E4002 SettingInvalid: The setting STUB is not set, but it is needed."


def test_a_first_http_server_that_cannot_serve_ends_the_runner_with_its_reason(start, tmp_path):
    (tmp_path / "refuses").touch()
    with start(STUB_FRONT_REFUSES=str(tmp_path / "refuses")) as runner:
        assert runner.process.wait(20) == 1
        text = runner.log.read_text()
    assert text.count("E4") == text.count(REFUSAL) == 1


def test_a_later_one_is_tried_again_and_its_reason_is_told(start, tmp_path):
    refuses = tmp_path / "refuses"
    with start(STUB_FRONT_REFUSES=str(refuses)) as runner:
        runner.wait("READY")
        refuses.touch()
        runner.kill(FRONT)
        wait_for(lambda: REFUSAL in runner.log.read_text())
        assert "the HTTP server cannot serve; restarting it" in runner.log.read_text()
        wait_for(lambda: runner.log.read_text().count(REFUSAL) > 6)  # and is not given up
        refuses.unlink()
        runner.wait("READY")


def test_killing_the_supervisor_leaves_no_process_and_the_next_start_sweeps_its_directory(start):
    with start() as runner:
        runner.wait("READY")
        runner.process.kill()
        assert wait_gone(runner.mark) == {}
        (left,) = runner.temporary.iterdir()
        os.utime(left, (0, 0))
        with start() as next_one:
            assert next_one.wait("READY")["address"]["feed_path"] != str(left / "feed")
            assert not left.exists()


def test_a_directory_in_use_is_not_swept(start, tmp_path):
    with start() as runner:
        runner.wait("READY")
        (directory,) = runner.temporary.iterdir()
        os.utime(directory, (0, 0))
        other = Runner(tmp_path, runner.temporary, COG_WEIGHTS="/nowhere")
        other.wait("SETUP_FAILED")
        assert directory.exists()
        other.process.terminate()
        assert other.process.wait(10) == 0


def test_sigterm_drains(start):
    with start(STUB_FRONT_DRAINS_FOR="3") as runner:
        runner.wait("READY")
        runner.process.terminate()
        assert runner.wait("DRAINING")["seconds"] == 25
        assert runner.process.wait(20) == 0


def test_a_second_sigterm_does_not_wait(start):
    with start(STUB_FRONT_DRAINS_FOR="1000") as runner:
        runner.wait("READY")
        runner.process.terminate()
        runner.wait("DRAINING")
        runner.process.terminate()
        assert runner.process.wait(15) == 0


def test_an_http_server_that_does_not_drain_has_no_more_time_to_end(start):
    settings = {"STUB_FRONT_DRAINS_FOR": "1000", "STUB_FRONT_IGNORES_SIGTERM": "1", "DRAIN_SECONDS": "0"}
    with start(**settings) as runner:
        runner.wait("READY")
        runner.process.terminate()
        assert runner.process.wait(SECONDS_TO_END - 4) == 0


def test_sigterm_while_the_weights_are_fetched_ends_at_once(start, silence):
    with start(COG_WEIGHTS=silence) as runner:
        runner.wait("STARTING")
        runner.process.terminate()
        assert runner.process.wait(5) == 0


def test_a_set_up_that_fails_is_told_by_the_front(start):
    with start(COG_WEIGHTS="/nowhere/engine.tar") as runner:
        assert "E4201 WeightsNotFound" in runner.wait("SETUP_FAILED")["error"]
        runner.kill(FRONT)
        assert "E4201 WeightsNotFound" in wait_for(lambda: runner.get().get("error"))


def test_a_set_up_that_fails_ends_a_runner_that_is_to_end_then(start):
    with start("--end-on-failure", COG_WEIGHTS="/nowhere/engine.tar") as runner:
        assert runner.process.wait(20) == 1
        assert "E4201 WeightsNotFound" in runner.log.read_text()


def test_a_set_up_that_fails_in_the_front_ends_triton(start):
    with start(STUB_FRONT_LOADS_FOR="1000") as runner:
        wait_for(lambda: any(TRITON in command for command in marked(runner.mark).values()))
        runner.get("/fail")
        assert "E2102" in runner.wait("SETUP_FAILED")["error"]
        wait_for(lambda: not any(TRITON in command for command in marked(runner.mark).values()))


def test_an_engine_that_dies_before_each_first_token_fails_the_set_up(start, mock_archive, answered):
    with start("--front", "runner.front", COG_WEIGHTS=str(mock_archive(time_to_first_token=3))) as runner:
        wait_for(lambda: runner.get("/health-check")["status"] == "STARTING")
        # Triton opens it when the engine is loaded.
        wait_for(lambda: "nv_" in httpx2.get(f"http://127.0.0.1:{runner.port}/metrics", timeout=5).text)
        while (health := runner.get("/health-check"))["status"] == "STARTING":
            engines = [pid for pid, command in marked(runner.mark).items() if ENGINE in command]
            time.sleep(1)  # it is asked for a token, and has three seconds for it
            for pid in engines:
                os.kill(pid, signal.SIGKILL)
        assert health["status"] == "SETUP_FAILED"
        answered(health["setup"]["logs"], EngineGaveUp())


def test_a_later_front_that_fails_to_load_does_not_end_what_has_served(ready):
    """Its failure was final: Triton was ended, and every later front said SETUP_FAILED."""
    triton, front = ready.pid(TRITON), ready.pid(FRONT)
    ready.get("/fail")
    wait_for(lambda: ready.get().get("pid", front) != front)
    ready.wait("READY")
    assert ready.pid(TRITON) == triton
    assert "the HTTP server cannot serve; restarting it" in ready.log.read_text()


def test_a_set_up_that_takes_too_long_ends_the_runner(start, silence):
    with start(COG_WEIGHTS=silence, SETUP_TIMEOUT="2") as runner:
        assert runner.process.wait(20) == 1
        assert "E4006 SetupTimedOut: The set-up did not finish within 2 s." in runner.log.read_text()


@pytest.fixture
def half(mock_archive):
    """The URL of an engine of which only one half is sent."""
    archive = mock_archive().read_bytes()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(archive)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as connections:

        def send() -> None:
            connection = connections.enter_context(listener.accept()[0])
            connection.recv(1 << 16)
            connection.sendall(head + archive[: len(archive) // 2])

        thread = threading.Thread(target=send)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/engine.tar"
        thread.join()


@pytest.mark.parametrize("how", ["signal", "time-out"])
def test_half_an_engine_does_not_stay_in_the_cache(start, half, tmp_path, how):
    """On a disk with room for one engine, no start worked for the next ten minutes."""
    cache = tmp_path / "cache"
    with start(COG_WEIGHTS=half, **({"SETUP_TIMEOUT": "3"} if how == "time-out" else {})) as runner:
        wait_for(lambda: list(cache.glob(".*.partial/*")))
        if how == "signal":
            runner.process.send_signal(signal.SIGTERM)
        assert runner.process.wait(30) == (0 if how == "signal" else 1)
    assert list(cache.iterdir()) == []


def test_nohup_is_respected(start):
    """It ended when the terminal was closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with start() as runner:
        signal.signal(signal.SIGHUP, before)
        runner.wait("READY")
        runner.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            runner.process.wait(2)
        assert runner.get()["status"] == "READY"


@pytest.mark.parametrize("number", ENDS)
def test_a_signal_while_it_is_being_imported_ends_it_quietly(start, number):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # as `cog-triton serve` does
    with start() as runner:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        runner.process.send_signal(number)
        assert runner.process.wait(30) == 0
        assert "KeyboardInterrupt" not in runner.log.read_text()


def test_the_time_for_the_set_up_includes_the_loading_of_the_engine(start):
    with start(STUB_FRONT_LOADS_FOR="1000", SETUP_TIMEOUT="3") as runner:
        assert runner.process.wait(30) == 1
        assert "E4006 SetupTimedOut: The set-up did not finish within 3 s." in runner.log.read_text()


def test_triton_and_the_engine_get_no_secrets(start, tmp_path):
    with start(**SECRETS, OMP_NUM_THREADS="3", ENGINE_ENVIRONMENT=f"{MARK}, WHATEVER") as runner:
        runner.wait("READY")
        for part in (TRITON, ENGINE):
            lines = Path(f"/proc/{runner.pid(part)}/environ").read_text().split("\0")
            environment = dict(line.split("=", 1) for line in lines if line)
            assert environment["OMP_NUM_THREADS"] == "3"
            assert environment.keys() & SECRETS.keys() == {"WHATEVER"}


def test_a_process_with_an_odd_name_disturbs_nobody(ready, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff) \xfe (")
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "600"]) as other:
        try:
            ready.kill(TRITON)
            ready.process.terminate()
            assert ready.process.wait(20) == 0
        finally:
            other.kill()


@pytest.mark.parametrize("place", ["readonly", "full", "long"])
def test_a_place_for_temporary_files_that_cannot_be_used_does_no_harm(start, tmp_path, place):
    directory = {"readonly": "/proc", "full": "/dev/full", "long": str(tmp_path / ("x" * 120))}[place]
    if place == "long":
        Path(directory).mkdir()
    with start(TMPDIR=directory) as runner:
        assert not runner.wait("READY")["address"]["feed_path"].startswith(directory)
