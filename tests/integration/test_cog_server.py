"""A worker of Cog's own server that never gets ready is noticed, reported with a code, and not left behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import httpx2
import pytest

from demo.cog_client import PredictionClient
from demo.cog_server import CogServer
from shared.cog.server import free_port, server_environment
from shared.errors import CogTritonError, PredictionFailed
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import READY_SECONDS
from tests.support.processes import MARK, marked, wait_gone
from tests.support.waiting import wait_for


@pytest.fixture
def start(tmp_path, mock_archive):
    """`start(statement)`: a runner whose worker executes this statement when it imports; none may be left."""

    @contextmanager
    def run(statement: str, **more: str):
        # Which only the worker imports.
        (tmp_path / "prometheus_client.py").write_text(statement)
        mark = os.urandom(8).hex()
        settings = {
            MARK: mark,
            "ENGINE_ENVIRONMENT": MARK,
            "SERVER": "cog",
            "COG_WEIGHTS": str(mock_archive()),
            "WEIGHTS_CACHE": str(tmp_path / "cache"),
            "PYTHONPATH": os.pathsep.join((str(tmp_path), str(PROJECT_ROOT))),
            **more,
        }
        with (
            (tmp_path / "log").open("wb") as log,
            CogServer("runner", environment=settings, output=log.fileno()) as server,
        ):
            yield server, mark
        assert wait_gone(mark) == {}

    return run


def test_what_cog_refuses_gets_a_code_from_our_client(start, answered):
    with start("", PYTHONPATH=str(PROJECT_ROOT)) as (server, _):
        server.wait_ready(READY_SECONDS)
        client = PredictionClient(server.url)
        assert "".join(client.text({"prompt": "x", "max_tokens": 3})) == "0 1 2"
        with pytest.raises(PredictionFailed) as refused:
            client.predict({"prompt": "x", "max_tokens": 0})
        (reason,) = re.findall("or it failed: (.*max_tokens.*)\\. Fix", str(refused.value))
        answered(str(refused.value), PredictionFailed(reason=reason))


def test_one_that_dies_at_import_ends_the_runner(start, tmp_path):
    with start("import os; os._exit(3)") as (server, _):
        assert server.process.wait(60) == 1
    assert "E4005 WorkerDied" in (tmp_path / "log").read_text()


def test_one_that_hangs_at_import_does_not_outlive_the_runner(start):
    with start("import time; time.sleep(600)") as (server, mark):
        wait_for(lambda: any("_run_worker" in command for command in marked(mark).values()))
        assert server.health()["status"] == "STARTING"


def test_without_a_supervisor_the_worker_has_one_of_its_own(mock_archive, tmp_path):
    """As `cog predict` runs it; it ends with the worker, however that ends."""
    mark, port = os.urandom(8).hex(), free_port()
    environment = {
        **os.environ,
        **server_environment(port),
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_PREDICT_TYPE_STUB": "run.py:Runner",
        "COG_WEIGHTS": str(mock_archive()),
        "WEIGHTS_CACHE": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=PROJECT_ROOT / "runner", env=environment, stdout=log, stderr=log
        ) as server,
    ):
        client = PredictionClient(f"http://127.0.0.1:{port}")

        def text() -> str:
            try:
                return "".join(client.text({"prompt": "x", "max_tokens": 3}))
            except (CogTritonError, httpx2.HTTPError):
                return ""

        try:
            assert wait_for(text) == "0 1 2"
            assert any("tritonserver" in command for command in marked(mark).values())
        finally:
            server.kill()
        assert wait_gone(mark) == {}
