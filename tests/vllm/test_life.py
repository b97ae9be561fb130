"""How the vLLM engine fails to start, and how it ends."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from runner.protocol.engine import Request, StructuredOutput
from runner.protocol.frames import ShutdownFrame, StepFrame
from tests.vllm.conftest import below, engine_core, gone, kill_all, serving

REQUESTS = [Request(number, [5, 6, 7], 200) for number in range(1, 17)]
# A start that fails: its code, and a word of what it says.
FAILED = {
    "architecture": "E2203 FooForCausalLM",
    "model type": "E2203 foo",
    "no config": "E2204 config.json",
    "no weights": "E2204 weights",
    "unknown quantization": "E2203 foo",
    "context": "E2206 max_model_len",
    "parallelism": "E2207 3",
    "argument": "E2202 gpu_memory_utilisation",
    "batch": "E2200 max_num_seqs",
    "layers": "E2200 layers.1",
    "cache": "E2210 memory",
}


@pytest.mark.parametrize(("case", "told"), FAILED.items())
def test_a_start_that_fails_says_why(failures, case, told):
    text = failures[case]
    code, word = told.split()
    assert text.startswith(code), text
    assert word in text
    assert "/tmp" not in text


@pytest.fixture(scope="module")
def take_engine(engine_directory, tmp_path_factory):
    """A function that gives an engine which no test has used. Two are started at once: each starts on one core."""
    ready = []
    with ExitStack() as engines, ThreadPoolExecutor() as pool:

        def start(_):
            log = tmp_path_factory.mktemp("log") / "log"
            return engines.enter_context(serving(engine_directory, log))

        def take():
            ready.extend([] if ready else pool.map(start, range(2)))
            return ready.pop()

        yield take


@pytest.fixture
def loaded(take_engine):
    """An engine with work to do; whatever it leaves is a failure."""
    process, driver = take_engine()
    children = below(process.pid)
    try:
        for request in REQUESTS:
            driver.submit(request)
        while not isinstance(next(driver.frames), StepFrame):
            continue
        yield process, driver
        assert gone(children, 30), "processes of vLLM are left"  # a second, on a machine with time for it
    finally:
        kill_all(children)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_core_that_is_killed_or_stopped_ends_the_process(loaded, number):
    process, driver = loaded
    core = engine_core(process.pid)
    os.kill(core, number)
    started = time.monotonic()
    assert process.wait(10) == 1
    assert time.monotonic() - started < 3  # a second, on a machine with time for it
    list(driver.frames)
    if number == signal.SIGSTOP:
        os.kill(core, signal.SIGKILL)  # as the bridge does with the whole group


def test_who_comes_after_a_core_has_died_neither_hides_it_nor_is_blamed(loaded):
    """They end with the process, too: its end is told as such, and not as the fault of what they ask for."""
    process, driver = loaded
    os.kill(engine_core(process.pid), signal.SIGKILL)
    started, number = time.monotonic(), 100
    with suppress(BrokenPipeError, ConnectionResetError):
        while process.poll() is None and time.monotonic() - started < 10:
            for structure in (None, StructuredOutput("regex", f"a{{{number}}}")):
                number += 1
                driver.submit(Request(number, [5, 6, 7], 200, structured_output=structure))
            time.sleep(0.02)
    assert time.monotonic() - started < 3  # as above
    frames = [frame for frame in driver.frames if isinstance(frame, StepFrame)]
    assert not [output.error for frame in frames for output in frame.outputs if output.error]


def test_killing_the_process_leaves_nothing(loaded):
    process, _ = loaded
    process.kill()
    process.wait(10)


def test_shutdown_under_load_is_quick(loaded):
    process, driver = loaded
    driver.send(ShutdownFrame())
    started = time.monotonic()
    assert process.wait(10) in {0, 1}
    assert time.monotonic() - started < 5
