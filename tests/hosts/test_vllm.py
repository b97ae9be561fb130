"""vLLM on two hosts by its own multi-node mode: the real vLLM, compiled for CPUs."""

from __future__ import annotations

import sys
import time

import pytest

from runner.engines.vllm.compile_cache import MADE_FOR
from runner.protocol.engine import Request, SamplingParameters
from runner.protocol.frames import ReadyFrame
from shared import VERSION
from shared.artifact import Manifest
from shared.layout import PROJECT_ROOT
from tests.hosts.conftest import LOST_WITHIN, SECRET, address_of, first_host, joined, told
from tests.reference.llama import Reference
from tests.support.processes import MARK
from tests.support.tensorrt_llm_engine import NVML
from tests.vllm.conftest import ENVIRONMENT, PYTHON, START_SECONDS, write_engine
from tests.vllm.model import MODEL

PROMPT = [5, 6, 7, 8, 9]


@pytest.fixture
def engine(tmp_path):
    arguments = {"enforce_eager": True, "kv_cache_memory_bytes": 256 << 20, "max_num_seqs": 16}
    made = write_engine(tmp_path / "engine", tensor_parallel_size=2, engine_args=arguments)
    manifest = Manifest(
        engine="vllm", model="demo", config_digest="0" * 64, cog_triton_version=VERSION, files=(), ranks=2
    )
    (made / "manifest.json").write_bytes(manifest.model_dump_json().encode())
    return made


@pytest.fixture
def hosts(tmp_path, namespaces, mark, engine):
    """`serving()` on the first, `joining()` on the second: each has one GPU, of which two are needed."""
    first, second = namespaces
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "home/engines").mkdir(parents=True)
    (tmp_path / "home/engines/vllm").symlink_to(PYTHON.parents[1])
    common = {MARK: mark, "ENGINE_ENVIRONMENT": f"{MARK},TORCHDYNAMO_DISABLE", **ENVIRONMENT}

    def serving():
        return first_host(first, engine, "vllm", str(PYTHON), log, **common)

    def joining():
        settings = {
            "ENGINE_DIR": str(engine),
            "COG_TRITON_HOME": str(tmp_path / "home"),
            "HOSTS_SECRET": SECRET,
            "COMPILE_CACHE": str(tmp_path / "compiled"),
            "PYTHONPATH": f"{NVML}:{PROJECT_ROOT}",
        }
        words = (sys.executable, "-m", "runner.lifecycle.joining", address_of(first))
        return joined(second.command(*words), log, **common, **settings)

    return serving, joining, second, log


def expect_ready(driver, log) -> None:
    driver.connection.settimeout(START_SECONDS)
    frame = next(driver.frames, None)
    assert isinstance(frame, ReadyFrame), f"{frame}\n{log.read_text()}"


def test_two_nodes_serve_as_one_and_a_lost_one_is_told_in_time(hosts, tmp_path):
    serving, joining, second, log = hosts
    expected = Reference(MODEL).greedy(PROMPT, 20, ())
    request = Request(1, PROMPT, 20, sampling=SamplingParameters(temperature=0.0))
    with serving() as (process, driver):
        with joining():
            expect_ready(driver, log)
            assert len(list((tmp_path / "compiled").glob(f"*/{MADE_FOR}"))) == 1  # by the node
            tokens, _, _ = driver.run(request)
            assert tokens[1] == expected
            started = time.monotonic()
            second.cut()
            text = told(driver)
        assert text.startswith(
            "E2409 HostLost: The host 10.231.77.2, which serves a part of the engine, is lost: "
        )
        assert process.wait(LOST_WITHIN) == 1
        assert time.monotonic() - started < LOST_WITHIN
