"""A worker that never gets ready is noticed, told with a code, and not left behind."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.pipeline import build
from demo.cog_server import CogServer
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import wait_for
from tests.support.processes import MARK, marked, pid_of, wait_gone


@pytest.fixture
def start(tmp_path):
    """`start(setting=value, ...)`: a runner under its supervisor; after it no process may be left."""

    @contextmanager
    def run(**settings: str):
        mark = os.urandom(8).hex()
        environment = {MARK: mark, "WEIGHTS_CACHE": str(tmp_path / "cache"), **settings}
        with (
            (tmp_path / "log").open("wb") as log,
            CogServer("runner", environment=environment, output=log.fileno()) as server,
        ):
            server.mark = mark  # type: ignore[attr-defined] # for the tests alone
            yield server
        assert wait_gone(mark) == {}

    return run


def broken_import(directory, statement: str) -> str:
    """The PYTHONPATH of a worker that executes this statement when it imports pydantic."""
    (directory / "broken").mkdir()
    (directory / "broken/pydantic.py").write_text(statement)
    return os.pathsep.join((str(directory / "broken"), str(PROJECT_ROOT)))


def test_a_worker_that_dies_before_cog_knows_it_ends_the_runner(start, tmp_path, saw):
    (tmp_path / "python").write_text("#!/bin/sh\nsleep 0.5\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    started = time.monotonic()
    with start(PATH=f"{tmp_path}:{os.environ['PATH']}") as server:
        assert server.process.wait(20) == 1
    assert time.monotonic() - started < 15
    assert "E4005 WorkerDied" in saw((tmp_path / "log").read_text())


def test_a_worker_that_dies_at_import_fails_the_set_up(start, tmp_path, saw):
    with start(PYTHONPATH=broken_import(tmp_path, "import os; os._exit(3)")) as server:
        wait_for(lambda: server.health()["status"] == "SETUP_FAILED")
        wait_for(lambda: "E4005 WorkerDied" in saw((tmp_path / "log").read_text()))
        assert server.process.poll() is None


def test_a_set_up_that_says_its_error_gets_no_second_one(start, tmp_path):
    with start(ENGINE_DIR="/nowhere") as server:
        wait_for(lambda: server.health()["status"] == "SETUP_FAILED")
        time.sleep(3)  # longer than the supervisor goes without a worker
        assert "E4005" not in (tmp_path / "log").read_text()
        assert server.process.poll() is None


def test_a_set_up_that_takes_too_long_ends_the_runner(start, tmp_path, saw, silence):
    with start(COG_WEIGHTS=silence, SETUP_TIMEOUT="2") as server:
        assert server.process.wait(30) == 1
    assert "E4006 SetupTimedOut: The set-up was not over after 2 s." in saw((tmp_path / "log").read_text())


def test_a_worker_that_hangs_at_import_does_not_outlive_the_runner(start, tmp_path):
    with start(PYTHONPATH=broken_import(tmp_path, "import time; time.sleep(600)")) as server:
        wait_for(lambda: any("_run_worker" in command for command in marked(server.mark).values()))
        assert server.health()["status"] == "STARTING"


def test_killing_the_supervisor_during_the_set_up_leaves_nothing_running(start, tmp_path, silence):
    with start(COG_WEIGHTS=silence) as server:
        wait_for(lambda: "Running setup" in (tmp_path / "log").read_text())
        time.sleep(0.5)
        os.kill(pid_of(server.mark, "runner.lifecycle.supervisor"), signal.SIGKILL)
        assert wait_gone(server.mark) == {}


def test_what_others_leave_behind_is_taken_in(start, tmp_path):
    (tmp_path / "config.yaml").write_text("engine: mock\n")
    build(str(tmp_path / "config.yaml"), tmp_path / "engine.tar")
    with start(COG_WEIGHTS=str(tmp_path / "engine.tar")) as server:
        server.wait_ready(60)
        engine = pid_of(server.mark, "runner.engines")
        os.kill(pid_of(server.mark, "tritonserver"), signal.SIGKILL)
        # Not even a zombie is left, while the runner goes on.
        wait_for(lambda: not Path(f"/proc/{engine}").exists())
        assert server.process.poll() is None
