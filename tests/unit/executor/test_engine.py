"""The TensorRT-LLM engine on the stand-in of its executor."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from runner.engines.catalogue import ENGINES
from runner.engines.process import load_engine
from runner.engines.tensorrt_llm.end_ids import eos_of
from runner.engines.tensorrt_llm.requests import executor_request, sampling_options
from runner.engines.tensorrt_llm.settings import read_settings
from runner.protocol.engine import FinishReason, Request, SamplingParameters, Statistics
from shared.errors import (
    EngineOfAnotherVersion,
    EngineStartFailed,
    ExecutorQueueFull,
    InvalidArgument,
    PromptRequired,
    PromptTooLong,
    RequestInvalid,
    TensorRTLLMNotLoaded,
)
from shared.home import SCRATCH
from tests.support.tensorrt_llm_engine import (
    ERROR,
    GPU_ERROR,
    HANG,
    MAX_SEQ_LEN,
    VOCAB_SIZE,
    stand_in_tokens,
    write_engine,
)

PROMPT = [10, 20]


@pytest.mark.parametrize("streaming", [True, False])
def test_every_token_comes_once_and_the_prompt_never(running, streaming):
    with running() as engine:
        tokens, reason = engine.run(Request(1, PROMPT, 300, streaming=streaming))
        assert (tokens, reason) == (stand_in_tokens(PROMPT, 300), FinishReason.LENGTH)
        assert len(engine.outputs[1]) == (300 if streaming else 1)


def test_requests_are_batched(running):
    with running() as engine:
        for number in range(20, 52):
            engine.submit(Request(number, [number], 50))
        for number in range(20, 52):
            assert engine.ended(number).finish_reason is FinishReason.LENGTH
            assert engine.tokens(number) == stand_in_tokens([number], 50)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("end_ids", [{35}, {35, 300}, {1, 35}, {1, 35, VOCAB_SIZE + 5}])
def test_each_end_id_ends_and_is_no_output(running, end_ids, streaming):
    with running() as engine:
        answer = engine.run(Request(1, PROMPT, 300, frozenset(end_ids), streaming=streaming))
        assert answer == ([30, 31, 32, 33, 34], FinishReason.END_ID)


EOS, OTHER = 35, 31  # of a tokenizer as Llama 3's: its EOS is not the lowest of the end ids


@pytest.mark.parametrize("streaming", [True, False])
class TestMinTokens:
    """Of [30, 31, 32, ...]: no end id may end the text before that many tokens; each may from there on."""

    @pytest.fixture
    def answer(self, running, streaming):
        def run(min_tokens, end_ids=frozenset({EOS, OTHER}), **options):
            with running(eos_id=EOS) as engine:
                sampling = SamplingParameters(min_tokens=min_tokens)
                request = Request(1, PROMPT, 9, end_ids, sampling=sampling, streaming=streaming, **options)
                answer = engine.run(request)
                assert engine.run(Request(2, PROMPT, 2)) == ([30, 31], FinishReason.LENGTH)
                return answer

        return run

    def test_the_tokenizers_own_cannot_be_chosen_before(self, answer):
        assert answer(7) == ([30, 31, 32, 33, 34, 36, 36, 37, 38], FinishReason.LENGTH)

    def test_another_ends_nothing_before(self, answer):
        assert answer(3) == ([30, 31, 32, 33, 34], FinishReason.END_ID)

    def test_another_ends_from_there_on(self, answer):
        assert answer(1) == ([30], FinishReason.END_ID)

    @pytest.mark.parametrize("min_tokens", [None, 0, -1])
    def test_without_a_minimum_the_first_of_them_ends(self, answer, min_tokens):
        assert answer(min_tokens) == ([30], FinishReason.END_ID)

    def test_stop_words_know_no_minimum(self, answer):
        assert answer(7, stop_words=[[33]]) == ([30, 31, 32, 33], FinishReason.STOP_WORDS)


def test_a_sequence_that_we_end_is_not_generated_further(running):
    with running(eos_id=EOS, step_seconds=0.01) as engine:
        sampling = SamplingParameters(min_tokens=1)
        assert engine.run(Request(1, PROMPT, 3000, frozenset({EOS, OTHER}), sampling=sampling))[0] == [30]
        until = time.monotonic() + 20
        while engine.engine.statistics().active_requests:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_stop_word_may_begin_in_the_prompt(running):
    with running() as engine:
        answer = engine.run(Request(1, PROMPT, 300, stop_words=[[20, 30]]))
        assert answer == ([30], FinishReason.STOP_WORDS)


def test_statistics_after_the_end_are_the_last_ones(running):
    with running() as engine:
        engine.run(Request(1, PROMPT, 3))
        before = engine.engine.statistics()
        engine.stop()
        assert engine.engine.statistics() == before


@pytest.mark.parametrize(
    ("config", "tokenizer", "eos_id"),
    [
        ({"eos_token": "<eot>"}, {"added_tokens": [{"id": 9, "content": "<eot>"}]}, 9),
        ({"eos_token": {"content": "</s>"}}, {"model": {"vocab": {"</s>": 2}}}, 2),
        ({"eos_token": "</s>"}, {"model": {"vocab": [["<unk>", 0.0], ["</s>", 0.0]]}}, 1),
        ({"eos_token": None}, {}, None),
        ({}, {}, None),
        ([], [], None),
    ],
)
def test_the_eos_is_that_of_the_tokenizer(tmp_path, config, tokenizer, eos_id):
    assert eos_of(tmp_path) is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert eos_of(tmp_path) == eos_id


@pytest.mark.parametrize("word", [[33], [32, 33]])
def test_stop_words_stay_in_the_output(running, word):
    with running() as engine:
        answer = engine.run(Request(1, PROMPT, 300, frozenset({1, 35}), stop_words=[[77, 78], word]))
        assert answer == ([30, 31, 32, 33], FinishReason.STOP_WORDS)


def test_bad_words_are_not_written(running):
    with running() as engine:
        tokens, _ = engine.run(Request(1, PROMPT, 6, bad_words=[[33]]))
        assert tokens == [30, 31, 32, 34, 34, 35]


def test_every_sampling_parameter_arrives(executor):
    parameters = {field.name for field in fields(SamplingParameters)}
    values = dict.fromkeys(ENGINES["tensorrt_llm"].honours & parameters, 0.5)
    request = Request(1, PROMPT, 1, sampling=SamplingParameters(**values))
    made = executor_request(executor, request, ()).sampling_config
    assert {name: getattr(made, name) for name in values} == values


@pytest.mark.parametrize(
    ("sampling", "options"),
    [
        ({}, {}),
        ({"top_k": -1, "top_p": 0.0, "min_tokens": -1}, {}),
        ({"temperature": 0.0, "top_p": 0.9}, {"top_k": 1}),
        ({"seed": 0, "top_k": 5}, {"seed": 0, "top_k": 5}),
    ],
)
def test_values_that_it_would_refuse_are_translated(sampling, options):
    assert sampling_options(SamplingParameters(**sampling)) == options


def test_a_cancelled_request_ends_and_is_forgotten(running):
    with running() as engine:
        engine.submit(Request(1, PROMPT, 3000))
        engine.submit(Request(2, [HANG], 5))
        engine.started(1)
        engine.engine.cancel(1)
        engine.engine.cancel(2)
        engine.engine.cancel(99)
        assert engine.ended(1).finish_reason is FinishReason.CANCELLED
        assert engine.ended(2).finish_reason is FinishReason.CANCELLED
        engine.engine.cancel(1)
        assert engine.run(Request(3, PROMPT, 3))[0] == [30, 31, 32]


def test_a_failed_step_fails_the_active_requests_only(running):
    with running() as engine:
        engine.submit(Request(1, PROMPT, 3000))
        engine.started(1)
        engine.submit(Request(2, [ERROR], 5))
        for number in (1, 2):
            error = str(engine.ended(number).error)
            assert error.startswith("E2500 TensorRTLLMError: TensorRT-LLM failed: mNextBlocks.empty(). ")
        assert engine.run(Request(3, PROMPT, 3))[0] == [30, 31, 32]


def test_after_an_error_of_the_gpu_the_engine_ends(running):
    with running() as engine:
        engine.submit(Request(1, [GPU_ERROR], 5))
        assert "CUDA runtime error" in str(engine.ended(1).error)
        engine._thread.join(20)
        assert "illegal memory access" in str(engine.failure)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (Request(1, [], 5), PromptRequired),
        (Request(1, [1] * 2001, 5), PromptTooLong),
        (Request(1, PROMPT, 0), InvalidArgument),
        (Request(1, [VOCAB_SIZE], 5), InvalidArgument),
        (Request(1, [1, -1], 5), InvalidArgument),
        (Request(1, PROMPT, 5, bad_words=[[VOCAB_SIZE]]), InvalidArgument),
        (Request(1, PROMPT, 5, sampling=SamplingParameters(top_k=1025)), InvalidArgument),
        (Request(1, PROMPT, 5, sampling=SamplingParameters(top_p=1.5)), RequestInvalid),
        (Request(1, PROMPT, 5, sampling=SamplingParameters(repetition_penalty=0)), RequestInvalid),
    ],
)
def test_a_request_that_can_never_run_is_refused_at_once(running, request_, error):
    with running() as engine, pytest.raises(error):
        engine.submit(request_)


@pytest.mark.parametrize(
    ("plugins", "server", "longest"),
    [
        ({"context_fmha": True, "remove_input_padding": True}, {}, 2000),
        ({"context_fmha": False, "remove_input_padding": True}, {}, 1000),
        (
            {"context_fmha": True, "remove_input_padding": True},
            {"enable_chunked_context": True},
            MAX_SEQ_LEN - 1,
        ),
    ],
)
def test_the_longest_prompt_is_the_engines_own(running, plugins, server, longest):
    with running(plugins=plugins, server=server) as engine:
        engine.run(Request(1, [1] * longest, 1))
        with pytest.raises(
            PromptTooLong, match=f"has {longest + 1} tokens; the maximum input length is {longest}"
        ):
            engine.submit(Request(2, [1] * (longest + 1), 1))


def test_a_full_queue_is_told(running):
    with running(server={"max_queue_size": 2}, batch=1) as engine:
        engine.submit(Request(1, [HANG], 5))
        while engine.engine.statistics().active_requests != 1:
            time.sleep(0.001)
        for number in (2, 3):
            engine.submit(Request(number, PROMPT, 5))
        with pytest.raises(ExecutorQueueFull, match="queue, 2, is reached"):
            engine.submit(Request(4, PROMPT, 5))


def test_statistics_are_those_of_the_latest_iteration(running):
    with running(batch=2) as engine:
        for number in (1, 2, 3):
            engine.submit(Request(number, PROMPT, 3000))
        engine.started(2)
        numbers = engine.engine.statistics()
        assert (numbers.active_requests, numbers.queued_requests, numbers.kv_cache_blocks) == (2, 1, 1000)
        assert numbers.kv_cache_blocks_used >= 2


def test_an_engine_that_did_nothing_has_empty_statistics(running):
    with running() as engine:
        assert engine.engine.statistics() == Statistics()


def test_shutdown_does_not_wait_for_what_runs(running):
    with running(step_seconds=0.01) as engine:
        engine.submit(Request(1, PROMPT, 3900))
        engine.started(1)
    assert engine.ended(1).finish_reason in (FinishReason.CANCELLED, FinishReason.NOT_FINISHED)


class TestLoading:
    def test_a_flat_archive_of_old_has_no_parameters(self, executor, tmp_path):
        engine = write_engine(tmp_path / "engine", server={"max_queue_size": 2}) / "engine"
        assert read_settings(engine).server_arguments == {}
        assert read_settings(engine).model_path == engine

    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("{", "cannot be read"),
            ("[]", "is not a JSON object"),
            ('{"version": "1.2.1"}', "the engine's config.json has no pretrained_config"),
        ],
    )
    def test_a_broken_config_is_told(self, tmp_path, text, part):
        engine = write_engine(tmp_path / "engine")
        (engine / "engine/config.json").write_text(text)
        with pytest.raises(EngineStartFailed, match=r"the engine's config\.json") as failed:
            load_engine(ENGINES["tensorrt_llm"], engine)
        assert part in str(failed.value)

    def test_an_engine_of_before_0_8_is_told(self, tmp_path):
        engine = write_engine(tmp_path / "engine")
        (engine / "engine/config.json").write_text(json.dumps({"builder_config": {}}))
        with pytest.raises(EngineOfAnotherVersion, match=r"before TensorRT-LLM 0\.8"):
            load_engine(ENGINES["tensorrt_llm"], engine)

    def test_a_missing_rank_is_told(self, tmp_path):
        engine = write_engine(tmp_path / "engine", tp_size=2)
        (engine / "engine/rank1.engine").unlink()
        with pytest.raises(EngineStartFailed, match=r"no file rank1\.engine"):
            load_engine(ENGINES["tensorrt_llm"], engine)

    def test_a_home_that_cannot_be_written_to_is_replaced(self, executor, monkeypatch, tmp_path):
        for name in [name for name in sys.modules if name.partition(".")[0] == "tensorrt_llm"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setenv("HOME", "/nowhere")
        monkeypatch.setenv(SCRATCH, str(tmp_path))
        load_engine(ENGINES["tensorrt_llm"], write_engine(tmp_path / "engine")).shutdown()
        assert Path(os.environ["HOME"]).parent == tmp_path

    def test_a_library_that_is_not_there_is_told(self, executor, monkeypatch, tmp_path):
        for name in [name for name in sys.modules if name.partition(".")[0] == "tensorrt_llm"]:
            monkeypatch.delitem(sys.modules, name)
        text = "libcuda.so.1: cannot open shared object file: No such file or directory"
        monkeypatch.setenv("STAND_IN_IMPORT_ERROR", text)
        with pytest.raises(TensorRTLLMNotLoaded, match=r"libcuda\.so\.1: cannot open"):
            load_engine(ENGINES["tensorrt_llm"], write_engine(tmp_path / "engine"))
