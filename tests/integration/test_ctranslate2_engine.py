"""From a checkpoint through the conversion to tokens: what CTranslate2 says is what the definition says."""

from __future__ import annotations

import socket
import subprocess

import ml_dtypes
import numpy as np
import pytest

from runner.protocol.engine import FinishReason, Output, Request
from runner.protocol.frames import ReadyFrame, RequestFrame, ShutdownFrame, StepFrame, Tensor, encode, receive
from runner.protocol.tokens import request_tensors
from shared.layout import PROJECT_ROOT
from tests.reference.llama import Reference
from tests.unit.ctranslate2.checkpoints import engine_python, write_checkpoint
from tests.unit.ctranslate2.running import RunningEngine, write_engine

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}

FAMILIES = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "smollm2": {
        "tie_word_embeddings": True,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "hidden_size": 72,
    },
    "one-key-value-head": {"num_key_value_heads": 1},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "large-heads": {"head_dim": 32, "num_key_value_heads": 2},
    "rope-base": {"rope_theta": 500000.0},
    "rope-linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "rope-llama3": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "rope-parameters": {"rope_theta": None, "rope_parameters": {"rope_theta": 500000.0, **LLAMA3}},
    "mistral": MISTRAL | {"num_key_value_heads": 2, "head_dim": 8, "sliding_window": None},
    "mistral-window": MISTRAL | {"num_key_value_heads": 4, "sliding_window": 16},
    "mistral-window-shared-heads": MISTRAL | {"num_key_value_heads": 2, "sliding_window": 16},
    "mistral-window-one-key-value-head": MISTRAL | {"num_key_value_heads": 1, "sliding_window": 16},
    "qwen2": QWEN2 | {"num_key_value_heads": 2},
    "qwen2-tied": QWEN2 | {"tie_word_embeddings": True, "sliding_window": 16, "use_sliding_window": False},
}
LENGTHS = (1, 2, 16, 17, 18, 33, 60)
MAX_TOKENS = 30


def prompts(vocab_size=100):
    random = np.random.default_rng(7)
    return [random.integers(0, vocab_size, length).tolist() for length in LENGTHS]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_the_definition(tmp_path, family):
    model = write_checkpoint(tmp_path / "model", **FAMILIES[family])
    reference = Reference(model)
    with RunningEngine(write_engine(model, tmp_path / "engine")) as engine:
        requests = [engine.submit(prompt, MAX_TOKENS) for prompt in prompts()]
        found = [engine.wait(request).tokens for request in requests]
    assert found == [reference.greedy(prompt, MAX_TOKENS, ()) for prompt in prompts()]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_float_type_of_a_checkpoint_is_understood(tmp_path, dtype):
    model = write_checkpoint(tmp_path / "model", dtype=dtype)
    reference = Reference(model)
    with RunningEngine(write_engine(model, tmp_path / "engine")) as engine:
        found = [engine.generate(prompt, MAX_TOKENS).tokens for prompt in prompts()]
    assert found == [reference.greedy(prompt, MAX_TOKENS, ()) for prompt in prompts()]


@pytest.mark.parametrize("family", ["llama", "tied", "rope-llama3", "mistral-window", "qwen2"])
def test_int8_keeps_most_first_tokens(tmp_path, family):
    model = write_checkpoint(tmp_path / "model", **FAMILIES[family])
    reference = Reference(model)
    random = np.random.default_rng(3)
    short = [random.integers(0, 100, 8).tolist() for _ in range(40)]
    with RunningEngine(write_engine(model, tmp_path / "engine", quantization="int8")) as engine:
        found = [engine.generate(prompt, 1).tokens for prompt in short]
    same = sum(tokens == reference.greedy(prompt, 1, ()) for prompt, tokens in zip(short, found, strict=True))
    assert same >= 30


def test_a_long_prompt_beyond_the_sliding_window_is_cancelled(tmp_path):
    model = write_checkpoint(tmp_path / "model", **FAMILIES["mistral-window"])
    with RunningEngine(
        write_engine(model, tmp_path / "engine", parallel_requests=1, max_seq_len=200_000)
    ) as engine:
        request = engine.submit([1] * 100_000, 5)
        engine.cancel(request)
        assert engine.wait(request).finish_reason == "CANCELLED"
        assert len(engine.generate([1, 2, 3], 5).tokens) == 5


def test_the_engine_process_serves_it_and_ends_in_the_middle_of_a_request(tmp_path):
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=1_000_000)
    engine_dir = write_engine(model, tmp_path / "engine", max_seq_len=None)
    ours, theirs = socket.socketpair()
    command = [engine_python(), "-m", "runner.engines.process", "--kind", "ctranslate2"]
    command += ["--engine-dir", engine_dir, "--socket-fd", str(theirs.fileno())]
    process = subprocess.Popen(command, cwd=PROJECT_ROOT, pass_fds=[theirs.fileno()])
    theirs.close()
    with ours:
        ours.settimeout(60)
        frames = receive(ours)
        try:
            assert isinstance(next(frames), ReadyFrame)
            for request in (Request(1, [1, 2, 3], 1_000_000), Request(2, [1, 2, 3], 20, streaming=False)):
                tensors = tuple(Tensor(*raw) for raw in request_tensors(request))
                ours.sendall(encode(RequestFrame(request.request_id, "", tensors)))
            outputs = steps_until(frames, 2)
            expected = Reference(model).greedy([1, 2, 3], 20, ())
            assert outputs == [Output(2, tuple(expected), FinishReason.LENGTH)]
            ours.sendall(encode(ShutdownFrame()))
            assert process.wait(timeout=60) in (0, 1)  # 1: it took too long; but no crash
        finally:
            process.kill()
            process.wait()


def steps_until(frames, request_id):
    """The outputs of a request, up to its last."""
    found = []
    while not found or found[-1].finish_reason is FinishReason.NOT_FINISHED:
        frame = next(frames)
        assert isinstance(frame, StepFrame)
        found += [output for output in frame.outputs if output.request_id == request_id]
    return found
