"""An engine for several GPUs, on the stand-ins of TensorRT-LLM's executor and of mpirun."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from runner.engines.tensorrt_llm.settings import rank_count
from runner.protocol.engine import Request
from runner.protocol.feed import EngineState
from shared.errors import RanksMismatch
from shared.home import SCRATCH
from shared.layout import PROJECT_ROOT
from tests.integration.conftest import cog_server
from tests.support.processes import marked, pid_of, wait_gone
from tests.support.tensorrt_llm_engine import (
    STAND_IN,
    runner_environment,
    stand_in_tokens,
    write_engine,
)
from tests.support.triton import Triton, triton

MPIRUN = PROJECT_ROOT / "tests/support/mpirun_stand_in"
PARAMETERS = {"engine_kind": "tensorrt_llm", "engine_path": f"{PROJECT_ROOT}:{STAND_IN}"}


@pytest.fixture(autouse=True)
def _mpirun(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{MPIRUN}:{os.environ['PATH']}")
    monkeypatch.setenv(SCRATCH, str(tmp_path))  # what it leaves when it is killed


@pytest.fixture
def server(tmp_path):
    with triton(tmp_path, write_engine(tmp_path / "engine", tp_size=3), **PARAMETERS) as running:
        yield running


def ranks(server) -> list[int]:
    return sorted(
        pid
        for pid, command in marked(server.mark).items()
        if "--rank-socket" in command and "--bind-to" not in command
    )


def test_three_ranks_serve_as_one(server):
    assert len(ranks(server)) == 3
    answers = server.run_all(Request(number, [number + 20], 100) for number in range(16))
    assert [answer.tokens for answer in answers] == [stand_in_tokens([n + 20], 100) for n in range(16)]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    assert wait_gone(server.mark) == {}
    assert "without calling finalize" not in server.log.read_text()


def test_with_stages_the_first_rank_leads_from_the_last_one(tmp_path):
    engine = write_engine(tmp_path / "engine", tp_size=2, pp_size=2, tell_plans=True)
    with triton(tmp_path, engine, **PARAMETERS) as server:
        assert server.run(Request(1, [20], 10)).tokens == stand_in_tokens([20], 10)
    assert [(engine / f"engine/plan{rank}").read_text() for rank in range(4)] == ["2", "3", "0", "1"]


def test_when_one_rank_dies_all_are_started_again(server):
    before = ranks(server)
    call = server.open(Request(1, [20], 1_000_000))
    next(call)
    os.kill(before[-1], signal.SIGKILL)
    assert [answer.error_message for answer in call][-1].startswith("E2400 EngineProcessDied: ")
    server.wait_for(lambda: server.engine.status.restarts == 1)
    server.wait_engine(EngineState.READY)
    assert server.run(Request(2, [20], 10)).tokens == stand_in_tokens([20], 10)
    assert not set(before) & set(ranks(server))


def test_kill_9_of_triton_leaves_no_rank(server):
    server.process.kill()
    server.process.wait()
    assert wait_gone(server.mark) == {}


def test_kill_9_of_the_launcher_leaves_no_rank(server):
    before = ranks(server)
    os.kill(pid_of(server.mark, "--bind-to"), signal.SIGKILL)
    server.wait_for(lambda: not set(before) & set(ranks(server)))


@pytest.mark.parametrize("visible", [None, "0"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_runner_shows_its_gpus_to_the_engine_and_none_to_triton(tmp_path, monkeypatch, ranks, visible):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings = runner_environment(tmp_path, tp_size=ranks, tell_gpus=True)
    if visible is not None:
        settings["CUDA_VISIBLE_DEVICES"] = visible
    with cog_server("runner", tmp_path / "log", **settings) as server:
        triton = Path(f"/proc/{pid_of(server.mark, 'bin/tritonserver')}/environ").read_bytes()
    assert b"CUDA_VISIBLE_DEVICES=" in triton.split(b"\0")
    engine = Path(settings["ENGINE_DIR"]) / "engine"
    assert [json.loads((engine / f"gpus{rank}.json").read_text()) for rank in range(ranks)] == [
        visible
    ] * ranks


def failed_to_load(tmp_path, **script: object) -> str:
    server = Triton(tmp_path, write_engine(tmp_path / "engine", tp_size=2, **script), **PARAMETERS)
    assert server.process.wait(30) != 0
    assert server.end() == {}
    return server.log.read_text()


@pytest.mark.parametrize("rank", [0, 1])
def test_what_one_rank_cannot_load_is_told(tmp_path, rank):
    text = (
        "The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.0"
    )
    assert "E2503 EngineOfAnotherGpu: " in failed_to_load(tmp_path, load_log=text, failing_rank=rank)


def test_without_mpirun_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "E2506 TensorRTLLMNotLoaded: TensorRT-LLM cannot be loaded: there is no mpirun" in failed_to_load(
        tmp_path
    )


def test_another_world_size_is_refused(tmp_path, monkeypatch):
    engine = write_engine(tmp_path / "engine", tp_size=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert rank_count(engine) == 2
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(RanksMismatch, match="it was built for 2, and WORLD_SIZE is 4"):
        rank_count(engine)
