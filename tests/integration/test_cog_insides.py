"""What runner/cog does for the sake of Cog's server: each test fails when a newer Cog no longer needs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import httpx2
import pytest

from runner.cog.release import RELEASE, check_release
from shared.cog.server import free_port
from shared.layout import PROJECT_ROOT
from shared.logs import configure_logging
from tests.integration.conftest import wait_for
from tests.support.processes import MARK, wait_gone

_PREDICTOR = """
import contextvars, time
from cog import BaseRunner, ConcatenateIterator, streaming, concurrent

class Runner(BaseRunner):
    def setup(self):
        pass

    @streaming
    @concurrent(max=4)
    async def run(self, prompt: str) -> ConcatenateIterator[str]:
        names = [variable.name for variable in contextvars.copy_context()]
        def words():
            yield " ".join(names)
            for number in range(100):
                time.sleep(0.02)
                with open({ticks!r}, "a") as file:
                    file.write("x")
                yield str(number)
        return words()
"""


@contextmanager
def serving(directory: Path):
    """A predictor of a few lines on Cog's server, without anything of ours; its address."""
    (directory / "run.py").write_text(_PREDICTOR.format(ticks=str(directory / "ticks")))
    schema = json.loads((PROJECT_ROOT / "runner/.cog/openapi_schema.json").read_text())
    inputs = schema["components"]["schemas"]["Input"]["properties"]
    schema["components"]["schemas"]["Input"]["properties"] = {"prompt": inputs["prompt"]}
    (directory / ".cog").mkdir()
    (directory / ".cog/openapi_schema.json").write_text(json.dumps(schema))
    (directory / "ticks").touch()
    port, mark = free_port(), os.urandom(8).hex()
    environment = {
        "COG_PREDICT_TYPE_STUB": "run.py:Runner",
        "COG_MAX_CONCURRENCY": "4",
        "PORT": str(port),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        MARK: mark,
    }
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cog.server.http", "--host", "127.0.0.1"],
            cwd=directory,
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        try:
            return httpx2.get(f"{url}/health-check").json()["status"] == "READY"
        except httpx2.TransportError:
            return False

    try:
        wait_for(is_ready)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            process.kill()
    assert wait_gone(mark) == {}


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as url:
        yield url


def first_lines(answer: httpx2.Response) -> str:
    text = ""
    for line in answer.iter_lines():
        text += line
        if "chunk" in line:
            return text
    raise AssertionError(text)


def test_the_release_whose_insides_are_known_is_the_one_that_is_locked():
    check_release()
    assert metadata.version("coglet") == RELEASE


def test_another_release_is_told_at_set_up(monkeypatch, capsys):
    monkeypatch.setattr(metadata, "version", lambda _name: "0.99.0")
    configure_logging()
    check_release()
    assert "cancels may not reach predictions" in capsys.readouterr().err


def test_a_client_that_leaves_does_not_stop_a_generator(served, tmp_path):
    """runner/cog/cancellation.py can go when it does."""
    with httpx2.stream(
        "POST",
        f"{served}/predictions",
        json={"input": {"prompt": "x"}},
        headers={"Accept": "text/event-stream"},
    ) as answer:
        text = first_lines(answer)
    # runner/cog/prediction.py finds by this whose prediction it is.
    assert "_coglet_prediction_id" in text
    ticks = tmp_path / "ticks"
    assert wait_for(lambda: ticks.stat().st_size == 100)
