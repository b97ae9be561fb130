"""What runner/cog/ makes up for is still amiss in Cog. A test here that fails names what can be deleted there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import cog
import httpx2
import pytest

from shared.cog.server import free_port, server_environment
from tests.support import plain_predictors
from tests.support.plain_predictors import PAUSE_SECONDS
from tests.support.processes import MARK, wait_gone
from tests.support.waiting import wait_for
from tools.docs.cog_schema import SCHEMA_FILE, openapi_schema

EVENTS = {"accept": "text/event-stream"}
SLOTS = 8


@contextmanager
def served(predictor, directory):
    """A client of Cog's server with this predictor."""
    package = directory / predictor.__name__
    (package / SCHEMA_FILE).parent.mkdir(parents=True)
    (package / SCHEMA_FILE).write_text(json.dumps(openapi_schema(plain_predictors.Plain.run, streaming=True)))
    shutil.copy(Path(plain_predictors.__file__), package / "run.py")
    port, mark = free_port(), os.urandom(8).hex()
    environment = {
        **os.environ,
        **server_environment(port),
        MARK: mark,
        "COG_MAX_CONCURRENCY": str(SLOTS),
        "COG_PREDICT_TYPE_STUB": f"run.py:{predictor.__name__}",
    }
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"],
            cwd=package,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            wait_for(lambda: _is_ready(client), 60)
            yield client
    finally:
        process.terminate()
        process.wait(20)
    assert wait_gone(mark) == {}


def _is_ready(client):
    try:
        ready = client.get("/health-check").json()["status"] == "READY"
        return ready and client.get("/openapi.json").status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with served(plain_predictors.Plain, tmp_path_factory.mktemp("cog")) as client:
        yield client


def test_a_cancel_does_not_reach_a_generator(plain):
    """Else runner/cog/cancellation.py can go."""
    body = {"id": "cancelled", "input": {"count": 15}}
    started = time.monotonic()
    with plain.stream("POST", "/predictions", json=body, headers=EVENTS) as answer:
        pieces = answer.iter_text()
        assert next(pieces)
        assert plain.post("/predictions/cancelled/cancel").status_code == 200
        rest = "".join(pieces)
    assert time.monotonic() - started > 15 * PAUSE_SECONDS
    assert '"chunk":"14 "' in rest


def test_a_metric_that_a_generator_tells_can_be_lost(plain):
    """Else `Prediction.record_metric` of runner/cog/prediction.py can go."""

    def told(_number):
        # So that they do not come at one instant, when Cog refuses them.
        time.sleep(0.02 * _number)
        answer = plain.post("/predictions", json={"input": {"count": 5}}).json()
        return answer["metrics"].get("told")

    with ThreadPoolExecutor(4) as pool:
        assert None in list(pool.map(told, range(4)))


def test_cog_does_not_say_which_prediction_it_is():
    """Else `current_prediction` of runner/cog/prediction.py need not look through the context."""
    names = {name for thing in (cog, cog.BaseRunner, cog.current_scope) for name in dir(thing)}
    assert not {name for name in names if "prediction_id" in name or name == "id"}


def test_an_asynchronous_generator_is_collected_before_anything_is_sent(tmp_path):
    """Else runner/run.py need not return a generator, and runner/cog/worker.py needs no queue of texts."""
    with served(plain_predictors.Asynchronous, tmp_path) as client:
        arrived = []
        with client.stream("POST", "/predictions", json={"input": {"count": 10}}, headers=EVENTS) as answer:
            for text in answer.iter_text():
                arrived += [time.monotonic()] * text.count("event: output")
    assert len(arrived) == 10
    assert arrived[-1] - arrived[0] < 5 * PAUSE_SECONDS


def test_a_server_whose_worker_died_says_nothing_of_it(tmp_path):
    """Else `CogServer.wait_until_broken` of runner/cog/server.py need not look for a worker: see its place there."""
    # It reads first: Cog does notice a worker that ends before it could be written to.
    (tmp_path / "python").write_text("#!/bin/sh\nhead -c 1 >/dev/null\ntouch ended\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    port = free_port()
    environment = {**os.environ, **server_environment(port), "COG_PREDICT_TYPE_STUB": "run.py:Runner"}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            status = wait_for(lambda: _status(client), 30)
            wait_for((tmp_path / "ended").exists, 30)
            time.sleep(2)
            assert process.poll() is None
            assert _status(client) == status == "STARTING"
    finally:
        process.kill()
        process.wait(20)


def _status(client):
    try:
        return client.get("/health-check").json()["status"]
    except httpx2.TransportError:
        return None
