"""What dies comes back, and those who waited are told."""

from __future__ import annotations

import os
import signal
import time

import httpx2
import pytest

from demo.cog_client import PredictionClient
from demo.cog_server import CogServer
from shared.errors import CogTritonError, EngineProcessDied, ShuttingDown, TritonUnavailable
from tests.integration.conftest import READY_SECONDS, cog_server, counted
from tests.support.load import run_streams
from tests.support.processes import MARK, marked, pid_of, wait_gone
from tests.support.waiting import wait_for

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
    ("victim", "errors"),
    [
        ("runner.engines.process", [EngineProcessDied(reason="it was ended by signal 9")]),
        (
            "bin/tritonserver",
            [
                TritonUnavailable(reason="the connection was closed"),
                TritonUnavailable(reason="Connection reset by peer"),
            ],
        ),
    ],
)
def test_a_death_in_the_middle_fails_every_stream_with_a_code_and_service_resumes(
    server, assert_failed, victim, errors
):
    unhealthy = []

    def kill(_streams):
        os.kill(pid_of(server.mark, victim), signal.SIGKILL)
        unhealthy.append(wait_for(lambda: server.health()["status"] == "UNHEALTHY"))

    inputs = [{"prompt": "x", "max_tokens": 3000} for _ in range(STREAMS)]
    # The mock would take a minute: that they all end within the time-out is because they failed.
    streams = run_streams(server.url, inputs, timeout=30, during=kill)
    assert unhealthy
    for stream in streams:
        assert stream.text.startswith("0 1 2")
        assert counted(3000).startswith(stream.text)
        (error,) = [one for one in errors if str(one) in stream.result["error"]]
        assert_failed(stream.result, error)

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


def test_a_front_that_dies_leaves_the_engine_loaded_and_its_streams_cancelled(server):
    """What the dead front had asked for is no longer worked on."""
    engine = pid_of(server.mark, "runner.engines.process")
    stream = PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3000})
    assert next(stream).split()[0] == "0"  # on a busy machine, the next tokens come with it
    os.kill(pid_of(server.mark, "runner.front"), signal.SIGKILL)
    wait_for(lambda: server.health()["status"] != "READY")
    server.wait_ready(READY_SECONDS)
    assert "".join(PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3})) == "0 1 2"
    assert pid_of(server.mark, "runner.engines.process") == engine
    wait_for(lambda: running_in_the_engine(server) == 0)


def test_a_front_that_was_stopped_for_a_while_goes_on(server):
    """It was killed, with all its streams, 11 s after it was stopped."""
    front = pid_of(server.mark, "runner.front")
    stream = PredictionClient(server.url).text({"prompt": "x", "max_tokens": 200})
    text = next(stream)
    os.kill(front, signal.SIGSTOP)
    time.sleep(14)
    os.kill(front, signal.SIGCONT)
    assert text + "".join(stream) == counted(200)
    assert pid_of(server.mark, "runner.front") == front


def running_in_the_engine(server) -> float:
    lines = httpx2.get(f"{server.url}/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("cog_triton_engine_active_requests ")]
    return float(line.split()[1])


@pytest.mark.parametrize("victim", ["cog.server.http", "coglet.server._run_worker"])
def test_cogs_own_server_and_its_worker_come_back_and_the_engine_stays_loaded(mock_archive, tmp_path, victim):
    settings = {"COG_WEIGHTS": str(mock_archive(tokens_per_second=50)), "SERVER": "cog"}
    with cog_server("runner", tmp_path / "log", WEIGHTS_CACHE=str(tmp_path / "w"), **settings) as server:
        engine = pid_of(server.mark, "runner.engines.process")
        stream = PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3000})
        assert next(stream) == "0"
        os.kill(pid_of(server.mark, victim), signal.SIGKILL)
        wait_for(lambda: server.health()["status"] != "READY")
        server.wait_ready(READY_SECONDS)
        assert "".join(PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3})) == "0 1 2"
        assert pid_of(server.mark, "runner.engines.process") == engine


def test_killing_the_supervisor_leaves_nothing_running(mock_archive, tmp_path):
    mark = os.urandom(8).hex()
    environment = {
        MARK: mark,
        "ENGINE_ENVIRONMENT": MARK,
        "COG_WEIGHTS": str(mock_archive()),
        "WEIGHTS_CACHE": str(tmp_path / "weights"),
    }
    with (
        (tmp_path / "log").open("wb") as log,
        CogServer("runner", concurrency=4, environment=environment, output=log.fileno()) as server,
    ):
        server.wait_ready(READY_SECONDS)
        assert any("tritonserver" in command for command in marked(mark).values())
        # With a prediction under way: a busy worker must end too.
        stream = PredictionClient(server.url).text({"prompt": "x", "max_tokens": 3000})
        assert next(stream) == "0"
        os.kill(pid_of(mark, "runner.lifecycle "), signal.SIGKILL)
        assert wait_gone(mark) == {}


@pytest.mark.parametrize(("seconds", "status"), [("20", "succeeded"), ("0.5", "failed")])
def test_a_shutdown_lets_predictions_finish_and_refuses_new_ones(
    mock_archive, tmp_path, assert_fails, assert_failed, seconds, status
):
    settings = {
        "COG_WEIGHTS": str(mock_archive(tokens_per_second=50)),
        "WEIGHTS_CACHE": str(tmp_path / "weights"),
    }
    with cog_server("runner", tmp_path / "log", concurrency=4, DRAIN_SECONDS=seconds, **settings) as server:
        client = PredictionClient(server.url)
        stream = client.events({"prompt": "x", "max_tokens": 150})
        events = [next(stream), next(stream)]
        server.process.terminate()
        wait_for(lambda: server.health()["status"] == "UNHEALTHY")
        assert_fails(client, {"prompt": "x"}, "", ShuttingDown())
        events += stream
        text = "".join(event.data["chunk"] for event in events if event.kind == "output")
        if status == "failed":
            assert text
            assert counted(150).startswith(text)
            assert_failed(events[-1].data, ShuttingDown())
        else:
            assert text == counted(150)
        assert server.process.wait(20) == 0
