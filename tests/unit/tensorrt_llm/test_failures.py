import re

import pytest

from builder.engines.tensorrt_llm.failures import coded
from shared.errors import (
    CheckpointInvalid,
    ConversionFailed,
    EngineEnvironmentBroken,
    EngineVersionMismatch,
    GpuMemoryExhausted,
    GpuNotFound,
    HostMemoryExhausted,
    NotEnoughSpace,
    NotSupportedOnGpu,
    ToolArgumentsRefused,
    UnsupportedArchitecture,
)


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("RuntimeError: Unsupported model architecture: Foo", UnsupportedArchitecture, "'Foo'"),
        (
            "NotImplementedError: Cannot export tensorrt_llm checkpoint for model foo: FooForCausalLM. It's not",
            UnsupportedArchitecture,
            "'FooForCausalLM'",
        ),
        ("StreamingLLM is no longer supported", ToolArgumentsRefused, "StreamingLLM"),
        ("GemmSwiGLU plugin requires --use_fused_mlp flag", ToolArgumentsRefused, "use_fused_mlp"),
        ("GemmSwiGLU plugin currently has limited support", ToolArgumentsRefused, "limited"),
        ("lookup_plugin=auto is not supported on SM 100.", NotSupportedOnGpu, "SM 100"),
        ("multiple_profiles is enabled, while opt_num_tokens is set.", ToolArgumentsRefused, "profiles"),
        ("Gather context logits is not support with draft len > 0.", ToolArgumentsRefused, "draft"),
        ("OSError: GPU is required for inference.", GpuNotFound, "docker run --gpus all"),
        ("Unsupported quantization format: int3", ToolArgumentsRefused, "int3"),
        ("Quantization supports only one quantization format.", ToolArgumentsRefused, "only one"),
        ("One of source checkpoint (model_dir, nemo_ckpt_path) must be specified", ToolArgumentsRefused, ""),
        ("trtllm-build: error: argument --dtype: invalid choice: 'x'", ToolArgumentsRefused, "choice: 'x'"),
        ("trtllm-build: error: unrecognized arguments: --tp_size 2", ToolArgumentsRefused, "--tp_size 2"),
        ("CUDA runtime error in f(x): out of memory (/src/a.h:7)", GpuMemoryExhausted, r"out of memory\. "),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", GpuMemoryExhausted, "max_batch_size"),
        ("Requested amount of GPU memory (17 bytes) could not be allocated", GpuMemoryExhausted, "17 bytes"),
        ("OutOfMemory (no further information)", GpuMemoryExhausted, ""),
        ("ImportError: libmpi.so.40: cannot open shared object file: x", EngineEnvironmentBroken, "libmpi"),
        ("ImportError: libcuda.so.1: cannot open shared object file: x", GpuNotFound, "libcuda"),
        ("ImportError: /opt/x/th.so: undefined symbol: _ZN3c10", EngineEnvironmentBroken, "_ZN3c10"),
        ("ModuleNotFoundError: No module named 'modelopt'", EngineEnvironmentBroken, "modelopt"),
        ("Version tag does not match. Note: Current", EngineVersionMismatch, "Version tag"),
        ("[json.exception.out_of_range.403] key 'version' not found", EngineVersionMismatch, "403"),
        ("OSError: [Errno 28] No space left on device: '/x/y'", NotEnoughSpace, 'in the step "build"'),
        ("ValueError: GPTQ with desc_act=True is not implemented!", CheckpointInvalid, r"implemented\. "),
        ("Expected but not provided tensors: {'lm_head.weight'}", CheckpointInvalid, "lm_head.weight"),
    ],
)
def test_known_failures_have_codes(line, error, words):
    found = coded("build", 1, ["[TRT-LLM] [I] Loading", line, "RuntimeError: what follows"])
    assert type(found) is error
    assert re.search(words, str(found))


def test_killed_by_the_kernel():
    assert isinstance(coded("build", -9, ["[TRT-LLM] [I] Building"]), HostMemoryExhausted)


def test_the_cause_counts_not_what_follows_from_it():
    lines = [
        "KeyError: 'model.layers.0.x'",
        "RuntimeError: Checkpoint conversion failed, please check error log.",
        "some farewell",
    ]
    found = coded("convert_to_ft", 1, lines)
    assert isinstance(found, ConversionFailed)
    assert "ended with status 1: KeyError: 'model.layers.0.x'" in str(found)


def test_no_path_and_no_backtrace_of_another_machine():
    line = (
        "[TensorRT-LLM][ERROR] Assertion failed: cannot read /home/jenkins/a/b.bin (/home/jenkins/x.cpp:12)"
    )
    assert "status 1: cannot read b.bin." in str(coded("build", 1, [line]))


def test_long_lines_are_cut():
    assert len(str(coded("build", 1, ["RuntimeError: " + "x" * 10_000]))) < 600


def test_a_tool_that_said_nothing():
    assert "it printed nothing" in str(coded("build", 3, []))


TRACEBACK = """\
Traceback (most recent call last):
  File "/app/examples/convert_checkpoint.py", line 210, in <module>
    main()
  File "/app/tensorrt_llm/models/{file}.py", line 17, in convert
    {source}
    ^^^^^^^^^^^^^^^^^^^^^^^^^
{exception}
"""


@pytest.mark.parametrize("prefix", ["", "[rank0]: "])
@pytest.mark.parametrize(
    ("source", "exception", "error", "words"),
    [
        (
            """raise ValueError(f"Unsupported model architecture: {architecture}")""",
            "ValueError: Unsupported model architecture: FooForCausalLM",
            UnsupportedArchitecture,
            "'FooForCausalLM' cannot be converted",
        ),
        (
            """raise ValueError(f"{part.name} is not divisible by {ranks}")""",
            "ValueError: lm_head is not divisible by 3",
            CheckpointInvalid,
            r"cannot be used: ValueError: lm_head is not divisible by 3\.",
        ),
        (
            """raise ValueError(f"{heads} is not divisible by tp_size {tp}")""",
            "ValueError: 128 is not divisible by tp_size 5",
            ToolArgumentsRefused,
            r"refuses its arguments: ValueError: 128 is not divisible by tp_size 5\.",
        ),
        (
            """raise Trouble(f"{what} error: argument --{name}: is wrong")""",
            "some.package.TroubleError: the pump is dry",
            ConversionFailed,
            r"status 1: some\.package\.TroubleError: the pump is dry\.",
        ),
    ],
)
def test_the_exception_is_told_not_the_source_that_raises_it(prefix, source, exception, error, words):
    text = TRACEBACK.format(file="modeling", source=source, exception=exception)
    lines = [f"{prefix}{line}" for line in text.splitlines()]
    for output in (lines, lines[4:], [*lines, "1 process was ended"]):
        found = coded("convert_to_ft", 1, output)
        assert type(found) is error
        assert re.search(words, str(found))
        assert "{" not in str(found)


def test_a_tool_whose_output_is_indented_is_told_all_the_same():
    assert "status 1: it is full" in str(coded("build", 1, ["[TRT-LLM] [I] Building", "   it is full"]))
