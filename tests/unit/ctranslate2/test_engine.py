from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.reference.llama import Reference
from tests.unit.ctranslate2.checkpoints import write_checkpoint
from tests.unit.ctranslate2.running import SETTINGS, RunningEngine, write_engine

PROMPT = [9, 17, 42]
FOREVER = 1_000_000


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_checkpoint(
        tmp_path_factory.mktemp("model") / "model", num_key_value_heads=2, max_position_embeddings=FOREVER
    )


@pytest.fixture(scope="module")
def engine_dir(model, tmp_path_factory):
    return write_engine(model, tmp_path_factory.mktemp("engine") / "engine")


@pytest.fixture(scope="module")
def engine(engine_dir):
    with RunningEngine(engine_dir) as running:
        assert running.state == "ready"
        yield running


@pytest.fixture
def patient_engine(model, tmp_path):
    """One request at a time, and room for one that never ends by itself."""
    with RunningEngine(
        write_engine(model, tmp_path / "engine", parallel_requests=1, max_seq_len=None)
    ) as running:
        yield running


@pytest.fixture(scope="module")
def reference(model):
    return Reference(model)


@pytest.fixture(scope="module")
def greedy(reference):
    """The likeliest tokens after `PROMPT`; the first five differ from each other."""
    tokens = reference.greedy(PROMPT, 30, ())
    assert len(set(tokens[:5])) == 5
    return tokens


def test_without_sampling_the_likeliest_tokens_come(engine, greedy):
    answer = engine.generate(PROMPT, 30)
    assert (answer.tokens, answer.finish_reason) == (greedy, "LENGTH")


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0, "top_p": 0.95},
        {"temperature": 1e-30, "top_p": 0.95},
        {"temperature": 5.0},
        {"temperature": 5.0, "top_k": 1},
        {"temperature": 5.0, "top_k": 1, "top_p": 0.95},
        {"temperature": 5.0, "top_k": 0},
        {"temperature": 5.0, "top_k": -1, "top_p": 0.0},
        {"temperature": 1.0, "top_p": 1e-6},
        {"min_tokens": -1},
        {"repetition_penalty": 1.0},
    ],
)
def test_what_is_greedy_to_tensorrt_llm_is_greedy(engine, greedy, sampling):
    assert engine.generate(PROMPT, 30, sampling=sampling).tokens == greedy


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 3.0, "top_p": 0.95, "top_k": 0},
        {"temperature": 3.0, "top_p": 1.0},
        {"temperature": 3.0, "top_k": 50},
        {"temperature": 3.0, "top_k": 1_000_000},
        {"top_p": 1.0},
    ],
)
def test_each_sampled_answer_is_another(engine, sampling):
    answers = [engine.generate(PROMPT, 60, sampling=sampling).tokens for _ in range(4)]
    assert len({tuple(tokens) for tokens in answers}) == 4


def test_each_process_samples_other_answers(engine_dir):
    sampling = {"temperature": 3.0, "top_p": 1.0}
    answers = set()
    for _ in range(2):
        with RunningEngine(engine_dir) as running:
            answers.add(tuple(running.generate(PROMPT, 60, sampling=sampling).tokens))
    assert len(answers) == 2


def test_top_k_leaves_the_likeliest_k(engine, reference):
    likeliest = reference.logits(PROMPT)[-1].argsort()[-3:]
    sampling = {"temperature": 100.0, "top_k": 3}
    found = {engine.generate(PROMPT, 1, sampling=sampling).tokens[0] for _ in range(60)}
    assert found == set(likeliest.tolist())


def test_top_p_leaves_the_nucleus(engine, reference):
    logits = reference.logits(PROMPT)[-1]
    best, second, third = logits.argsort()[::-1][:3]
    flat = 1 / 100  # at this temperature every token has nearly this probability
    sampling = {"temperature": 1e4, "top_p": 2.5 * flat}
    found = {engine.generate(PROMPT, 1, sampling=sampling).tokens[0] for _ in range(60)}
    assert found == {best, second, third}


def test_a_high_repetition_penalty_lets_no_token_come_twice(engine, greedy):
    assert len(set(greedy)) < len(greedy)
    tokens = engine.generate(PROMPT, 30, sampling={"repetition_penalty": 1e6}).tokens
    assert len(set(tokens)) == 30


def test_an_end_id_ends_and_is_left_out(engine, greedy):
    answer = engine.generate(PROMPT, 30, end_ids=[greedy[3]])
    assert (answer.tokens, answer.finish_reason) == (greedy[:3], "END_ID")


def test_the_first_of_several_end_ids_ends(engine, greedy):
    assert engine.generate(PROMPT, 30, end_ids=[greedy[4], greedy[2]]).tokens == greedy[:2]


def test_an_answer_may_be_empty(engine, greedy):
    answer = engine.generate(PROMPT, 30, end_ids=[greedy[0]])
    assert (answer.tokens, answer.finish_reason) == ([], "END_ID")


def test_end_ids_that_the_model_does_not_have_are_passed_over(engine, greedy):
    assert engine.generate(PROMPT, 30, end_ids=[-1, 100, 10**9]).tokens == greedy


def test_no_end_id_comes_before_min_tokens(engine, greedy):
    answer = engine.generate(PROMPT, 30, end_ids=[greedy[0], greedy[1]], sampling={"min_tokens": 7})
    assert len(answer.tokens) >= 7
    assert not {greedy[0], greedy[1]} & set(answer.tokens)


def test_min_tokens_may_exceed_max_tokens(engine, greedy):
    answer = engine.generate(PROMPT, 3, end_ids=[greedy[0]], sampling={"min_tokens": 7})
    assert (len(answer.tokens), answer.finish_reason) == (3, "LENGTH")


def test_a_stop_word_ends_and_stays(engine, greedy):
    answer = engine.generate(PROMPT, 30, stop_words=[[99, 98], greedy[2:4]])
    assert (answer.tokens, answer.finish_reason) == (greedy[:4], "STOP_WORDS")


def test_an_empty_stop_word_means_nothing(engine, greedy):
    assert engine.generate(PROMPT, 30, stop_words=[[]]).tokens == greedy


def test_a_stop_word_counts_as_such_at_the_last_token_too(engine, greedy):
    assert engine.generate(PROMPT, 4, stop_words=[greedy[2:4]]).finish_reason == "STOP_WORDS"


def test_a_stop_word_does_not_begin_in_the_prompt(engine, greedy):
    assert engine.generate(PROMPT, 30, stop_words=[[PROMPT[-1], greedy[0]]]).tokens == greedy


def test_max_tokens_is_cut_to_the_room_that_is_left(engine):
    answer = engine.generate([1] * 120, 500)
    assert (len(answer.tokens), answer.finish_reason) == (8, "LENGTH")


def test_a_prompt_of_one_token_is_enough(engine, reference):
    assert engine.generate([7], 10).tokens == reference.greedy([7], 10, ())


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code"),
    [
        ([], 5, "E1001 "),
        ([1] * 128, 5, "E1002 PromptTooLong: The prompt has 128 tokens; the maximum input length is 127"),
        (PROMPT, 0, "E1104 "),
        ([1, 100], 5, "E1104 "),
        ([1, -1], 5, "E1104 "),
    ],
)
def test_a_request_that_can_never_run_is_refused(engine, prompt, max_tokens, code):
    assert engine.generate(prompt, max_tokens).error.startswith(code)


def test_what_ctranslate2_refuses_fails_that_request_only(engine, greedy):
    bad = engine.submit(PROMPT, 30, sampling={"repetition_penalty": -1.0})
    good = engine.submit(PROMPT, 30)
    assert engine.wait(bad).error.startswith(
        "E2300 CTranslate2Error: CTranslate2 failed: The repetition penalty"
    )
    assert engine.wait(good).tokens == greedy


def test_many_requests_at_once_all_get_their_tokens(engine, greedy):
    requests = [engine.submit(PROMPT, length) for length in range(1, 31)]
    assert [engine.wait(request).tokens for request in requests] == [greedy[:n] for n in range(1, 31)]


def test_a_running_request_is_cancelled(patient_engine):
    request = patient_engine.submit(PROMPT, FOREVER)
    patient_engine.wait_for_token(request)
    patient_engine.cancel(request)
    assert patient_engine.wait(request).finish_reason == "CANCELLED"


def test_a_waiting_request_is_cancelled_while_it_waits(patient_engine):
    running = patient_engine.submit(PROMPT, FOREVER)
    waiting = patient_engine.submit(PROMPT, 5)
    patient_engine.wait_for_token(running)
    patient_engine.cancel(waiting)
    answer = patient_engine.wait(waiting)
    assert (answer.tokens, answer.finish_reason) == ([], "CANCELLED")
    assert not patient_engine.answers[running].is_whole()


def test_a_request_after_a_cancelled_one_runs(patient_engine, greedy):
    running, waiting = patient_engine.submit(PROMPT, FOREVER), patient_engine.submit(PROMPT, 30)
    patient_engine.wait_for_token(running)
    patient_engine.cancel(running)
    assert patient_engine.wait(waiting).tokens == greedy


def test_an_unknown_request_is_not_there_to_cancel(engine, greedy):
    engine.cancel(12345)
    engine.cancel(len(engine.answers) + 1)
    assert engine.generate(PROMPT, 30).tokens == greedy


def test_waiting_requests_run_in_the_order_they_came(patient_engine):
    first = patient_engine.submit(PROMPT, FOREVER)
    others = [patient_engine.submit(PROMPT, 20) for _ in range(3)]
    patient_engine.wait_for_token(first)
    patient_engine.cancel(first)
    for request, later in pairwise(others):
        patient_engine.wait(request)
        assert not patient_engine.answers[later].is_whole()
    assert patient_engine.wait(others[-1]).finish_reason == "LENGTH"


def test_two_requests_run_at_the_same_time(model, tmp_path):
    with RunningEngine(write_engine(model, tmp_path / "engine", max_seq_len=None)) as running:
        first, second = running.submit(PROMPT, FOREVER), running.submit(PROMPT, FOREVER)
        running.wait_for_token(first)
        running.wait_for_token(second)
        assert not running.answers[first].is_whole()


def test_shutdown_cancels_everything_and_ends_the_steps(patient_engine):
    requests = [patient_engine.submit(PROMPT, FOREVER) for _ in range(3)]
    patient_engine.wait_for_token(requests[0])
    patient_engine.send("shutdown")
    assert patient_engine.exit_status() == 0
    assert {patient_engine.answers[request].finish_reason for request in requests} == {"CANCELLED"}


def test_the_room_is_that_of_the_model_when_the_config_does_not_say(tmp_path):
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=20)
    with RunningEngine(write_engine(model, tmp_path / "engine", max_seq_len=None)) as running:
        assert len(running.generate(PROMPT, 500).tokens) == 17


def test_every_core_works_when_the_config_does_not_say(model, tmp_path, greedy):
    with RunningEngine(write_engine(model, tmp_path / "engine", parallel_requests=None)) as running:
        assert running.generate(PROMPT, 30).tokens == greedy


NO_VOCABULARY = "E2407 EngineStartFailed: The engine process cannot serve: the engine's vocabulary.json"


@pytest.mark.parametrize(
    ("file", "content", "code"),
    [
        (
            "config.json",
            None,
            "E2407 EngineStartFailed: The engine process cannot serve: the engine's config.json",
        ),
        ("config.json", "{", "E2407 "),
        ("config.json", json.dumps({"quantization": "int8"}), "E2407 "),
        *(
            (
                "config.json",
                json.dumps(SETTINGS | {key: value}),
                f"E2407 EngineStartFailed: The engine process cannot serve: {key} in the engine's config.json",
            )
            for key, value in (
                ("parallel_requests", -1),
                ("parallel_requests", 0),
                ("parallel_requests", 10**6),
                ("parallel_requests", "2"),
                ("threads_per_request", None),
                ("threads_per_request", 10**6),
                ("max_seq_len", True),
                ("max_seq_len", 1 << 40),
                ("quantization", "int4"),
                ("quantization", []),
            )
        ),
        ("engine/vocabulary.json", None, "E2407 "),
        ("engine/vocabulary.json", "null", NO_VOCABULARY),
        ("engine/vocabulary.json", "[" * 200_000, NO_VOCABULARY),
        (
            "engine/config.json",
            "[]",
            "E2407 EngineStartFailed: The engine process cannot serve: the engine's config.json",
        ),
        ("engine/model.bin", "", "E2300 "),
        ("engine/model.bin", None, "E2300 "),
    ],
)
def test_a_broken_engine_does_not_start(model, tmp_path, file, content, code):
    engine_dir = write_engine(model, tmp_path / "engine")
    (engine_dir / file).unlink()
    if content is not None:
        (engine_dir / file).write_text(content)
    with RunningEngine(engine_dir) as running:
        assert running.state == "start failed"
        assert running.start_detail.startswith(code)
        assert str(tmp_path) not in running.start_detail
