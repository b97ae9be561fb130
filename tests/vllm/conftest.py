"""The real vLLM, compiled for CPUs by a third party: its Python is vLLM's own (requirements/test-vllm.txt)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from runner.protocol.frames import ReadyFrame
from shared.layout import PROJECT_ROOT
from tests.support.engine_process import driven
from tests.support.hub import Hub, Repository
from tests.support.temporary import own_temporary_files
from tests.vllm.acceptance import Accepted, run_acceptance
from tests.vllm.lora import ADAPTERS, write_adapter
from tests.vllm.model import ARGUMENTS, MAX_SEQ_LEN, MODEL

PYTHON = PROJECT_ROOT / ".build/test-vllm/bin/python"
ENVIRONMENT = {
    # Several engines share the cores of the machine.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Even where graphs are off each start compiles functions of the sampler, with a C++ compiler, for half a minute.
    "TORCHDYNAMO_DISABLE": "1",
    # The first start compiles the modules that it imports, for those after it.
    "PYTHONDONTWRITEBYTECODE": "",
}
START_SECONDS = 400


def write_engine(directory: Path, **config) -> Path:
    """What a builder would unpack: the demo's model, and engine arguments."""
    (directory / "tokenizer").mkdir(parents=True)
    shutil.copytree(MODEL, directory / "engine")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.move(directory / "engine" / name, directory / "tokenizer")
    arguments = {"engine_args": ARGUMENTS, "max_model_len": MAX_SEQ_LEN} | config
    (directory / "config.json").write_text(json.dumps({"engine": "vllm", "model": "demo"} | arguments))
    return directory


@contextmanager
def serving(directory: Path, log: Path, adapters: Path | None = None, **more: str):
    """An engine process that is ready, and the driver of its socket."""

    def command(fd: str) -> list[str]:
        return [
            *(str(PYTHON), "-m", "runner.engines.process", "--kind", "vllm"),
            *("--engine-dir", str(directory), "--socket-fd", fd),
        ]

    environment = ENVIRONMENT | more | ({} if adapters is None else {"LORA_FOLDER": str(adapters)})
    with log.open("w") as file, driven(command, PROJECT_ROOT, file, **environment) as (process, driver):
        driver.connection.settimeout(START_SECONDS)
        ready = next(driver.frames)
        assert isinstance(ready, ReadyFrame), ready
        driver.connection.settimeout(60)
        yield process, driver


@pytest.fixture(scope="session", autouse=True)
def temporary():
    with own_temporary_files():
        yield


@pytest.fixture(scope="session")
def engine_directory(tmp_path_factory):
    return write_engine(tmp_path_factory.mktemp("vllm") / "engine")


@pytest.fixture(scope="session")
def adapters(tmp_path_factory):
    """The folder of LoRA adapters."""
    folder = tmp_path_factory.mktemp("adapters")
    for name in ADAPTERS:
        write_adapter(folder / name, ADAPTERS[name])
    return folder


@pytest.fixture(scope="session")
def log(tmp_path_factory):
    """What that engine says."""
    return tmp_path_factory.mktemp("log") / "log"


@pytest.fixture(scope="session")
def engine(engine_directory, adapters, log):
    """One engine for all tests that leave it as it is."""
    with serving(engine_directory, log, adapters) as (process, driver):
        yield process, driver


@pytest.fixture(scope="session", autouse=True)
def beside(request, tmp_path_factory, temporary):
    """What is made beside the tests, of what they ask for: vLLM starts on one core."""
    made = {"references": references_by_vllm, "failures": failures_of_starts, "accepted": acceptance}
    asked = {name for item in request.session.items for name in item.fixturenames}
    with ThreadPoolExecutor(1) as pool:
        yield {
            name: pool.submit(make, tmp_path_factory.mktemp(name))
            for name, make in made.items()
            if name in asked
        }


def pytest_collection_modifyitems(items):
    """What is waited for longest comes last."""
    items.sort(key=lambda item: "accepted" in item.fixturenames)


def references_by_vllm(scratch: Path) -> Any:
    return run_script("tests/vllm/reference.py", scratch)


def failures_of_starts(scratch: Path) -> Any:
    return run_script("tests/vllm/failures.py", scratch)


def acceptance(scratch: Path) -> Accepted:
    """Of the demo's model on a hub."""
    name = "someone/demo"
    # With max_num_seqs from the checks themselves, as for users: so few are filled soon, also on a busy machine.
    arguments = {key: value for key, value in ARGUMENTS.items() if key != "max_num_seqs"}
    config = {"engine": "vllm", "model": name, "max_model_len": MAX_SEQ_LEN, "engine_args": arguments}
    with Hub() as hub:
        hub.repositories[name] = Repository(MODEL)
        where = {"HF_ENDPOINT": hub.url, "HF_HOME": str(scratch / "cache")}
        return run_acceptance(scratch, config, PYTHON, ENVIRONMENT | where)


@pytest.fixture
def references(beside):
    """What vLLM's own LLM class writes: after each prompt, and after ten of them with each of two adapters."""
    return beside["references"].result()


@pytest.fixture
def greedy_reference(references):
    return references["none"]


@pytest.fixture
def lora_references(references):
    """By the adapter's name."""
    return {name: texts for name, texts in references.items() if name != "none"}


@pytest.fixture
def failures(beside):
    """The error of each start that fails."""
    return beside["failures"].result()


@pytest.fixture
def accepted(beside):
    """What `cog-triton acceptance` said, without a fault and with some."""
    return beside["accepted"].result()


def run_script(script: str, scratch: Path, *arguments: str) -> Any:
    """What a script writes, in the environment of vLLM, to the file that is its first argument, as JSON."""
    result = scratch / "result.json"
    done = subprocess.run(
        [PYTHON, script, str(result), *arguments],
        env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(PROJECT_ROOT)},
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(result.read_bytes())


def below(pid: int) -> set[int]:
    """The live processes below one, at any depth."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_bytes().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            parents[int(path.parent.name)] = int(parent)
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def engine_core(pid: int) -> int:
    """The process of the engine core below an engine process."""
    (core,) = (child for child in below(pid) if name_of(child).startswith("VLLM::EngineCor"))
    return core


def gone(pids: set[int], seconds: float) -> bool:
    """Whether all of them end in time."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def kill_all(pids: set[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
