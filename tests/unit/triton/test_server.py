"""What the runner makes of a Triton that does not come up; a small program stands in for it."""

from __future__ import annotations

import pytest

from runner.protocol.status import StatusPage
from runner.triton.server import TritonServer
from shared.errors import EngineStartFailed, TritonFailedToStart
from shared.layout import Layout


@pytest.fixture
def start(tmp_path):
    """`start(script)`: a TritonServer whose program is this shell script."""
    servers = []

    def run(script: str) -> TritonServer:
        program = tmp_path / "triton/pytriton/tritonserver/bin/tritonserver"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        (tmp_path / "triton/nvidia_pytriton.libs").mkdir()
        bridge = tmp_path / "bridge/engine_bridge/libtriton_engine_bridge.so"
        bridge.parent.mkdir(parents=True)
        bridge.touch()
        page = StatusPage.create(tmp_path / "status")
        servers.append(TritonServer(Layout(tmp_path), tmp_path / "models", 1, page))
        return servers[-1]

    yield run
    for server in servers:
        server.stop()


def test_a_program_that_ends(start):
    with pytest.raises(TritonFailedToStart, match="status 3"):
        start("exit 3").wait_ready(lambda: False, 20)


def test_a_program_that_ends_with_a_coded_error(start, capfd):
    server = start("echo 'failed: E2407 EngineStartFailed: it is broken. Mend it.' >&2; exit 1")
    with pytest.raises(EngineStartFailed, match="it is broken"):
        server.wait_ready(lambda: False, 20)
    assert "it is broken" in capfd.readouterr().err


def test_a_program_that_is_never_ready(start):
    server = start("exec sleep 60")
    with pytest.raises(TritonFailedToStart, match=r"not ready after 0\.2 s"):
        server.wait_ready(lambda: False, 0.2)
