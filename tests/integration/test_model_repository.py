"""`cog-triton model-repository`: the line that it prints starts a Triton that answers."""

from __future__ import annotations

import os
import signal
import subprocess

import httpx2
import pytest
from typer.testing import CliRunner

from builder.pipeline import build
from cli.main import app
from shared.cog.server import free_port
from tests.support.processes import MARK, wait_gone
from tests.support.waiting import wait_for


@pytest.mark.parametrize("form", ["archive", "directory"])
def test_what_is_printed_serves_the_engine(tmp_path, monkeypatch, form):
    folder = tmp_path / "my 'own' place"
    folder.mkdir()
    monkeypatch.setenv("WEIGHTS_CACHE", str(folder / "weights"))
    engine = folder / "engine.tar"
    build("data:,engine: mock", engine)
    if form == "directory":
        engine = write(engine, folder / "first") and next((folder / "weights").iterdir())
    line = write(engine, folder / "models")
    assert line.count("\n") == 1
    mark, port = os.urandom(8).hex(), free_port()
    with subprocess.Popen(
        ["/bin/sh", "-c", f"{line.strip()} --http-port={port} --grpc-port={free_port()}"],
        cwd="/",
        env={**os.environ, MARK: mark},
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    ) as triton:
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}/v2") as http:
                wait_for(lambda: is_ready(http))
                answer = http.post("/models/ensemble/generate", json={"text_input": "1 2 3", "max_tokens": 4})
                assert answer.status_code == 200
                assert len(answer.json()["text_output"].split()) == 4
        finally:
            os.killpg(triton.pid, signal.SIGTERM)
    assert wait_gone(mark) == {}


def write(engine, out) -> str:
    result = CliRunner().invoke(
        app, ["model-repository", "--engine", str(engine), "--out", str(out)], catch_exceptions=False
    )
    return result.output


def is_ready(http) -> bool:
    try:
        return http.get("/health/ready").status_code == 200
    except httpx2.TransportError:
        return False
