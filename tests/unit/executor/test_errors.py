"""TensorRT-LLM's error texts become coded errors, without the paths and backtraces in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engines.catalogue import ENGINES
from runner.engines.process import load_engine
from runner.engines.tensorrt_llm.errors import cause_of, coded, leaves_gpu_broken, plain_text
from shared.errors import CogTritonError, EngineOfAnotherVersion, TensorRTLLMError
from tests.support.tensorrt_llm_engine import write_engine

PLACE = " (/src/tensorrt_llm/cpp/tensorrt_llm/batch_manager/trtGptModel.cpp:117)\n1  0x7f12 /usr/lib/libtrt.so(+0x1)"

TEXTS = [
    (
        "Encountered an error when fetching new request: Prompt length (5000) exceeds maximum input length (4095). Set log level to info and check TRTGptModel logs for how maximum input length is set",
        "E1002 PromptTooLong: The prompt has 5000 tokens; the maximum input length is 4095.",
    ),
    (
        "Encountered an error when fetching new request: [TensorRT-LLM][ERROR] Assertion failed: EndId (99) is not within acceptable range [-1, 50).",
        "E1104 InvalidArgument: end_id is 99, but this model's tokens are 0 to 49. Send another value, or omit it.",
    ),
    (
        "[TensorRT-LLM][ERROR] Assertion failed: topP.value() > 0.f",
        "E1300 RequestInvalid: The request cannot be used: TensorRT-LLM refuses a sampling parameter: topP.value() > 0.f.",
    ),
    ("Incorrect sampling config", "E1300 RequestInvalid: "),
    (
        "Maximum queue size of 8 has been reached, please try again later",
        "E2501 ExecutorQueueFull: The limit on requests in TensorRT-LLM's queue, 8, is reached.",
    ),
    (
        "[json.exception.out_of_range.403] key 'mapping' not found",
        "E2502 EngineOfAnotherVersion: ",
    ),
    (
        "With communicationMode kLEADER, MPI worldSize is expected to be equal to tp*pp*cp when participantIds are not specified",
        "E2504 RanksMismatch: ",
    ),
    (
        "CUDA runtime error in ::cudaMallocAsync(ptr, n, mStream): out of memory",
        "E2507 GpuMemoryTooSmall: ",
    ),
    (
        "Attention window too large to fit even a single sequence in the KV cache. Failing fast",
        "E2507 GpuMemoryTooSmall: ",
    ),
    ("File does not exist: /data/engines/llama/config.json", "E2500 TensorRTLLMError: TensorRT-LLM failed: File does not exist: config.json."),
    ("", "E2500 TensorRTLLMError: TensorRT-LLM failed: it gave no reason."),
]  # fmt: skip
# Of these the exception says nothing; they are lines of the log.
LOGGED = [
    (
        "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion magicTagRead == kMAGIC_TAG failed.Magic tag does not match)",
        "E2502 EngineOfAnotherVersion: ",
    ),
    (
        "[TRT] The engine plan file is not compatible with this version of TensorRT, expecting library version 10.14.1.48 got 10.13.0.35, please rebuild.",
        "E2502 EngineOfAnotherVersion: The engine was built for another version of TensorRT or TensorRT-LLM: it needs TensorRT 10.13.0.35, and the one here is 10.14.1.48.",
    ),
    (
        "Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: 240, Serialized Engine Version: 239",
        "E2502 EngineOfAnotherVersion: ",
    ),
    (
        "The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.0, please rebuild.",
        "E2503 EngineOfAnotherGpu: The engine was built for compute capability 8.0; the GPU here has 8.6.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_a_text_of_tensorrt_llm_has_a_code(text, expected):
    error = str(coded(text + PLACE))
    assert error.startswith(expected)
    assert "/src" not in error
    assert "0x7f12" not in error


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_a_failure_to_load_has_a_code(executor, tmp_path, text, expected):
    if not text:
        return
    with pytest.raises(Exception, match=r"E\d{4}") as failed:
        load_engine(ENGINES["tensorrt_llm"], write_engine(tmp_path / "engine", load_error=text))
    assert str(failed.value).startswith(expected)


@pytest.mark.parametrize(("text", "expected"), LOGGED)
def test_the_cause_that_only_the_log_tells_has_a_code(executor, tmp_path, capfd, text, expected):
    with pytest.raises(CogTritonError) as failed:
        load_engine(ENGINES["tensorrt_llm"], write_engine(tmp_path / "engine", load_log=text))
    assert str(failed.value).startswith(expected)
    assert text in capfd.readouterr().err  # it is still logged


def test_a_cause_that_nobody_knows_is_what_the_exception_says(executor, tmp_path):
    engine = write_engine(tmp_path / "engine", load_log="Something new.")
    with pytest.raises(TensorRTLLMError, match=r"failed: Failed to deserialize cuda engine\. Check the log"):
        load_engine(ENGINES["tensorrt_llm"], engine)


def test_a_warning_is_no_cause():
    said = "[TensorRT-LLM][WARNING] out of memory may follow\n"
    assert type(cause_of("it failed", said)) is TensorRTLLMError


@pytest.mark.parametrize(
    ("built", "fits"),
    [("10.14.1.48", True), ("10.14.1.48.post1", True), ("10.13.0.35", False), ("10.14.1.4", False)],
)
def test_an_engine_of_another_tensorrt_is_refused_before_it_is_loaded(executor, tmp_path, built, fits):
    def load():
        engine = write_engine(tmp_path / "engine", tensorrt_version=built, load_error="it was loaded")
        load_engine(ENGINES["tensorrt_llm"], engine)

    text = "it was loaded" if fits else f"it needs TensorRT {built}, and the one here is 10.14.1.48.post1"
    with pytest.raises(TensorRTLLMError if fits else EngineOfAnotherVersion, match=text):
        load()


@given(st.text(max_size=200))
def test_any_text_is_one_line_with_a_code(text):
    error = str(coded(text))
    assert "\n" not in error
    assert error[0] == "E"


@given(st.from_regex(r"(/[a-z]{1,8}){2,5}/[a-z]{1,8}\.cpp", fullmatch=True))
def test_no_folder_of_the_build_machine_is_left(path):
    folder = path.rpartition("/")[0]
    assert folder not in plain_text(f"it failed at {path} ({path}:12)\n3 0x1 {path}")


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("CUDA runtime error in f(): an illegal memory access was encountered", True),
        ("NCCL error /x/y.cpp:12 'unhandled cuda error'", True),
        ("CUDA runtime error in f(): out of memory", False),
        ("Assertion failed: mNextBlocks.empty()", False),
    ],
)
def test_after_an_error_of_cuda_nothing_works(text, broken):
    assert leaves_gpu_broken(text) is broken
