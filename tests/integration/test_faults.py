"""What dies comes back, and whoever waited is told."""

from __future__ import annotations

import os
import signal

import pytest

from shared.cog.client import PredictionClient
from shared.cog.server import CogServer
from shared.errors import CogTritonError
from tests.integration.conftest import READY_SECONDS, cog_server, wait_for
from tests.support.load import run_streams
from tests.support.processes import MARK, marked, pid_of, wait_gone

STREAMS = 16


@pytest.fixture
def server(mock_archive, tmp_path):
    weights = str(mock_archive(tokens_per_second=50))
    cache = str(tmp_path / "weights")
    with cog_server(
        "runner", tmp_path / "log", concurrency=32, COG_WEIGHTS=weights, WEIGHTS_CACHE=cache
    ) as it:
        yield it


@pytest.mark.parametrize(
    ("victim", "codes"),
    [("runner.engines.process", {"E2400"}), ("bin/tritonserver", {"E2105"})],
)
def test_a_death_in_the_middle_fails_every_stream_with_a_code_and_service_resumes(server, saw, victim, codes):
    unhealthy = []

    def kill(_streams):
        os.kill(pid_of(server.mark, victim), signal.SIGKILL)
        unhealthy.append(wait_for(lambda: server.health()["status"] == "UNHEALTHY"))

    inputs = [{"prompt": "x", "max_tokens": 3000} for _ in range(STREAMS)]
    # The mock would take a minute: that they all end within the time-out is because they failed.
    streams = run_streams(server.url, inputs, timeout=30, during=kill)
    assert unhealthy
    for stream in streams:
        assert stream.result["status"] == "failed"
        assert stream.text.startswith("0 1 2")
        assert any(code in saw(stream.result["error"]) for code in codes), stream.result["error"]

    client = PredictionClient(server.url)

    def works() -> bool:
        try:
            return "".join(client.predict({"prompt": "x", "max_tokens": 3})["output"]) == "0 1 2"
        except CogTritonError:
            return False

    wait_for(works)
    wait_for(lambda: server.health()["status"] == "READY")


def test_a_hung_engine_shows_and_so_does_its_recovery(server):
    engine = pid_of(server.mark, "runner.engines.process")
    os.kill(engine, signal.SIGSTOP)
    try:
        wait_for(lambda: server.health()["status"] == "UNHEALTHY", 15)
    finally:
        os.kill(engine, signal.SIGCONT)
    wait_for(lambda: server.health()["status"] == "READY")


@pytest.mark.parametrize("victim", ["cog.server.http", "coglet.server._run_worker"])
def test_killing_cog_leaves_nothing_running(mock_archive, tmp_path, victim):
    mark = os.urandom(8).hex()
    environment = {MARK: mark, "COG_WEIGHTS": str(mock_archive()), "WEIGHTS_CACHE": str(tmp_path / "weights")}
    with (
        (tmp_path / "log").open("wb") as log,
        CogServer("runner", concurrency=4, environment=environment, output=log.fileno()) as server,
    ):
        server.wait_ready(READY_SECONDS)
        assert any("tritonserver" in command for command in marked(mark).values())
        # With a prediction under way: a busy worker must end too.
        stream = PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3000})
        assert next(stream) == "0"
        os.kill(pid_of(mark, victim), signal.SIGKILL)
        if victim == "coglet.server._run_worker":
            left = wait_for(lambda: not any("cog.server.http" not in c for c in marked(mark).values()))
            assert left
        else:
            assert wait_gone(mark) == {}
