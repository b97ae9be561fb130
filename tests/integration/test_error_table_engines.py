"""The rest of the error table over HTTP: what a broken Triton, TensorRT-LLM and CTranslate2 lead to."""

from __future__ import annotations

import json
import re
import resource
import time
from pathlib import Path

import pytest

from builder.pipeline import build
from demo.cog_client import PredictionClient
from shared.errors import (
    ChatTemplateMissing,
    CogTritonError,
    CTranslate2Error,
    ExecutorQueueFull,
    GenericError,
    GpuMemoryTooSmall,
    ParameterNotHonoured,
    TensorRTLLMError,
    TritonMalformedEvent,
    TritonTokenizerError,
    TritonUnavailable,
    TritonUnknownError,
)
from tests.integration.conftest import cog_server, unpacked
from tests.support.processes import pid_of
from tests.support.tensorrt_llm_engine import runner_environment
from tests.support.triton_stand_in import NO_CODE, home_with_it
from tests.support.waiting import wait_for

NO_FRAME = "the outputs of a step end too early, or end for an unknown reason"
NO_TOKEN = "it cannot encode the prompt: WordLevel error: Missing [UNK] token from the vocabulary"
NO_MEMORY = "CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory"
MODEL = Path(__file__).parents[2] / "demo/model"


@pytest.fixture(scope="module")
def broken_triton(mock_archive, tmp_path_factory):
    """A runner on a stand-in for tritonserver; "95" to "98" are the tokens 100 to 103."""
    directory = tmp_path_factory.mktemp("broken")
    engine = unpacked(mock_archive(), directory)
    # This tokenizer has no token for a word that it does not know, but for the "a" of the probe.
    path = engine / "tokenizer/tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["added_tokens"] = []
    tokenizer["model"]["vocab"]["a"] = tokenizer["model"]["vocab"].pop("<unk>")
    path.write_text(json.dumps(tokenizer))
    settings = {"ENGINE_DIR": str(engine), "COG_TRITON_HOME": str(home_with_it(directory))}
    with cog_server("runner", directory / "log", concurrency=8, **settings) as server:
        yield PredictionClient(server.url)


@pytest.mark.parametrize(
    ("inputs", "text", "error"),
    [
        ({"prompt": "95"}, "0 1", TritonUnknownError(reason=NO_CODE)),
        ({"prompt": "96"}, "0 1", TritonMalformedEvent(reason=NO_FRAME)),
        ({"prompt": "97"}, "0 1", GenericError()),
        ({"prompt": "98"}, "0 1", TritonUnavailable(reason="the connection was closed")),
        ({"prompt": "x"}, "", TritonTokenizerError(reason=NO_TOKEN)),
        ({"messages": '[{"role": "user", "content": "1"}]'}, "", ChatTemplateMissing()),
    ],
)
def test_answers_that_triton_should_never_give(broken_triton, assert_fails, inputs, text, error):
    assert_fails(broken_triton, inputs, text, error)

    def works() -> bool:
        try:
            return "".join(broken_triton.text({"prompt": "1"})) == "0"
        except CogTritonError:
            return False

    wait_for(works)


@pytest.fixture(scope="module")
def tensorrt_llm(tmp_path_factory):
    """One request at a time, and one that waits. At "1" and "2", tokens 6 and 7, a step fails."""
    directory = tmp_path_factory.mktemp("tensorrt-llm")
    settings = runner_environment(directory, server={"max_queue_size": 1}, batch=1, step_seconds=0.02)
    with cog_server("runner", directory / "log", concurrency=8, **settings) as server:
        yield PredictionClient(server.url)


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("2", TensorRTLLMError(reason="mNextBlocks.empty()")),
        ("1", GpuMemoryTooSmall(reason=NO_MEMORY)),
    ],
)
def test_a_step_that_fails(tensorrt_llm, assert_fails, prompt, error):
    assert_fails(tensorrt_llm, {"prompt": prompt}, "", error)
    assert "".join(tensorrt_llm.text({"prompt": "11", "max_tokens": 3})) == "11 12 13"


def test_a_full_queue(tensorrt_llm, assert_fails):
    running, waiting = (tensorrt_llm.events({"prompt": "11", "max_tokens": 100}) for _ in range(2))
    assert next(event for event in running if event.kind == "output")
    assert next(waiting).kind == "start"
    time.sleep(0.2)  # the first token of the second comes after the hundredth of the first
    assert_fails(tensorrt_llm, {"prompt": "11"}, "", ExecutorQueueFull(limit=1))
    assert list(waiting)[-1].data["status"] == "succeeded"


@pytest.fixture(scope="module")
def ctranslate2(tmp_path_factory):
    directory = tmp_path_factory.mktemp("ctranslate2")
    (directory / "config.yaml").write_text(f"engine: ctranslate2\nmodel: {MODEL}\n")
    build(str(directory / "config.yaml"), directory / "engine.tar")
    settings = {"ENGINE_DIR": str(unpacked(directory / "engine.tar", directory))}
    with cog_server("runner", directory / "log", concurrency=4, **settings) as server:
        yield server


def test_what_ctranslate2_cannot_honour(ctranslate2, assert_fails):
    error = ParameterNotHonoured(engine="ctranslate2", parameter="seed", value=7)
    assert_fails(PredictionClient(ctranslate2.url), {"prompt": "Once", "seed": 7}, "", error)


def test_ctranslate2_without_memory(ctranslate2, assert_failed):
    """The scores of this prompt are one block of 4 heads x 2002 x 2002 floats: 64 MB."""
    engine = pid_of(ctranslate2.mark, "runner.engines.process")
    pages = int(Path(f"/proc/{engine}/statm").read_text().split()[0])
    before = resource.prlimit(engine, resource.RLIMIT_AS)
    client = PredictionClient(ctranslate2.url)
    resource.prlimit(engine, resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), before[1]))
    try:
        result = list(client.events({"prompt": "Once upon " * 667}))[-1].data
    finally:
        resource.prlimit(engine, resource.RLIMIT_AS, before)
    # What it says depends on the library that multiplies matrices on this processor.
    (reason,) = re.findall(r"CTranslate2 failed: (.*(?:memory|alloc).*)\. Check", result["error"])
    assert_failed(result, CTranslate2Error(reason=reason))
    assert len("".join(client.text({"prompt": "Once", "max_tokens": 3}))) > 3
