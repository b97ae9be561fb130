"""What tests.gpu.serving reads on a machine with GPUs: NCCL's logs, processes, greedy tokens."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from runner.engines.vllm.compile_cache import model_of
from shared.artifact import EngineDirectory
from tests.gpu.serving.greedy import against
from tests.gpu.serving.machine import MULTICAST_OFF, host_of, multicast_is_off, transports
from tests.gpu.serving.model import write_engine
from tests.vllm.model import MODEL


def test_channels_are_counted_by_what_they_go_by_and_logs_are_read_once(tmp_path):
    lines = [
        "first:41:90 [0] NCCL INFO NET/Socket : Using [0]v1:10.231.77.1<0>",
        "first:41:90 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0",
        "first:41:90 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
    ]
    (tmp_path / "nccl-first-41.txt").write_text("\n".join(lines))
    (tmp_path / "nccl-second-42.txt").write_text(
        "x:4:9 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM\n"
    )
    told = transports(tmp_path)
    assert told["channels"] == {"NET/Socket/0": 2, "P2P/CUMEM": 1}
    assert lines[2] in told["lines"]
    assert transports(tmp_path) == {"channels": {}, "lines": []}


@pytest.fixture
def sleeping():
    """A process with the environment that it gets."""
    started = []

    def start(environment):
        command = [sys.executable, "-c", "input(print(flush=True))"]
        process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        process.stdout.readline()  # until then its environment may look empty
        return process.pid

    yield start
    for process in started:
        process.communicate(b"\n")


def test_a_worker_that_may_use_multicast_is_an_error(sleeping):
    safe = sleeping({**os.environ, **MULTICAST_OFF})
    assert multicast_is_off({safe: "VLLM::Worker_TP0 ", os.getpid(): "python"}) == ["VLLM::Worker_TP0"]
    unsafe = sleeping({**os.environ, **MULTICAST_OFF, "NCCL_NVLS_ENABLE": "1"})
    with pytest.raises(RuntimeError, match=r"VLLM::Worker_TP1 lacks .'NCCL_NVLS_ENABLE': '0'."):
        multicast_is_off({safe: "VLLM::Worker_TP0", unsafe: "VLLM::Worker_TP1"})


def test_what_would_be_killed_with_a_host_is_never_the_machine(sleeping):
    with pytest.raises(RuntimeError, match="has no host name of its own"):
        host_of(sleeping(None))


def test_engines_with_the_same_weights_share_what_is_compiled(tmp_path):
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model-00000.safetensors").write_bytes(b"weights")
    made = [
        write_engine(tmp_path / name, {"tensor_parallel_size": 2}, weights, tokenizer=MODEL)
        for name in ("first", "second")
    ]
    assert model_of(made[0]) == model_of(made[1])
    engine = EngineDirectory(made[1])
    assert engine.manifest is not None
    assert (engine.manifest.ranks, engine.config["tensor_parallel_size"]) == (2, 2)
    assert (made[1] / "engine/model-00000.safetensors").read_bytes() == b"weights"


def test_greedy_texts_are_held_against_those_of_an_earlier_call(tmp_path):
    file = tmp_path / "greedy.json"
    assert against(file, ["abc", "def"]) == {}
    compared = {"prompts": 2, "equal": 1, "characters": 6, "before_the_first_other": 4}
    assert against(file, ["abc", "d-f"]) == compared
    assert against(None, ["a"]) == {}
