"""The vLLM engine, driven as the bridge drives it."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.protocol.engine import FinishReason, Request, SamplingParameters
from runner.protocol.frames import CancelFrame, StatisticsFrame, StepFrame
from tests.vllm.model import GREEDY_TOKENS, MAX_SEQ_LEN, PROMPTS, VOCABULARY

IDS = iter(range(1, 1 << 30))
GREEDY = SamplingParameters()


def ask(prompt=(5, 6, 7), max_tokens=20, **parts) -> Request:
    return Request(next(IDS), list(prompt), max_tokens, **parts)


def outputs(driver, *requests):
    """All outputs of each request, in order."""
    for request in requests:
        driver.submit(request)
    return gathered(driver, {request.request_id for request in requests})


def gathered(driver, waiting):
    found = {number: [] for number in waiting}
    waiting = set(waiting)
    while waiting:
        frame = next(driver.frames)
        if not isinstance(frame, StepFrame):
            continue
        for output in frame.outputs:
            if output.request_id in found:
                found[output.request_id].append(output)
                if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                    waiting.discard(output.request_id)
    return found


def answer(driver, **parts):
    """Tokens and finish reason of one request."""
    request = ask(**parts)
    own = outputs(driver, request)[request.request_id]
    assert own[-1].error is None, own[-1].error
    return [token for output in own for token in output.tokens], own[-1].finish_reason


@pytest.fixture(scope="module")
def greedy(engine):
    """The tokens that it writes after the usual prompt."""
    return answer(engine[1])[0]


def test_greedy_tokens_are_those_of_vllms_own_class(engine, greedy_reference):
    requests = [ask(prompt, GREEDY_TOKENS) for prompt in PROMPTS]
    got = outputs(engine[1], *requests)
    assert [
        [token for output in got[r.request_id] for token in output.tokens] for r in requests
    ] == greedy_reference


def test_one_frame_for_each_step(engine):
    driver = engine[1]
    requests = [ask(max_tokens=50) for _ in range(16)]
    for request in requests:
        driver.submit(request)
    waiting, frames = {request.request_id for request in requests}, 0
    while waiting:
        frame = next(driver.frames)
        if isinstance(frame, StepFrame):
            frames += 1
            waiting -= {
                o.request_id for o in frame.outputs if o.finish_reason is not FinishReason.NOT_FINISHED
            }
    assert frames < 16 * 50 / 4


def test_an_end_id_ends_and_is_no_output(engine, greedy):
    assert answer(engine[1], end_ids=frozenset({greedy[4], VOCABULARY + 5})) == (
        greedy[: greedy.index(greedy[4])],
        FinishReason.END_ID,
    )


def test_a_stop_word_of_one_token_stays_in_the_output(engine, greedy):
    end = greedy.index(greedy[4]) + 1
    assert answer(engine[1], stop_words=[[greedy[4]]]) == (greedy[:end], FinishReason.STOP_WORDS)


def test_a_stop_word_of_several_tokens_stays_in_the_output(engine, greedy):
    driver = engine[1]
    assert answer(driver, stop_words=[[VOCABULARY - 1, 3], greedy[3:6]]) == (
        greedy[:6],
        FinishReason.STOP_WORDS,
    )
    # The engine core was told, and goes on with others.
    assert answer(driver)[0] == greedy


def test_a_minimum_holds_end_ids_and_stop_words_off(engine, greedy):
    sampling = SamplingParameters(min_tokens=10)
    for parts in ({"end_ids": frozenset({greedy[4]})}, {"stop_words": [greedy[3:6]]}):
        tokens, _ = answer(engine[1], sampling=sampling, **parts)
        assert len(tokens) >= 10


def test_bad_words_are_not_written(engine, greedy):
    assert greedy[4] not in answer(engine[1], bad_words=[[greedy[4]]])[0]
    tokens, _ = answer(engine[1], bad_words=[greedy[3:5]])
    assert tokens[:4] == greedy[:4]
    assert tokens[4] != greedy[4]


def test_a_bias_decides(engine):
    assert answer(engine[1], max_tokens=4, logit_bias={77: 100.0})[0] == [77] * 4


@pytest.mark.parametrize("bias", [-1e11, 3e38, float("inf"), float("nan")])
def test_a_bias_that_does_not_stay_finite_is_refused(engine, bias):
    (last,) = outputs(engine[1], request := ask(max_tokens=4, logit_bias={77: bias}))[request.request_id]
    assert (last.error.code, last.error.details["argument"]) == ("E1104", "logit_bias")


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("penalty", [1e-3, 1e3])
def test_the_largest_bias_decides(engine, sign, penalty):
    sampling = SamplingParameters(temperature=0.01, top_p=1.0, repetition_penalty=penalty)
    tokens, _ = answer(engine[1], max_tokens=4, logit_bias={77: sign * 1e10}, sampling=sampling)
    assert len(tokens) == 4
    assert all((token == 77) == (sign > 0) for token in tokens)


@pytest.mark.parametrize("penalty", [1e-40, 1e-4, 1e4])
def test_a_repetition_penalty_that_does_not_leave_logits_finite_is_refused(engine, penalty):
    request = ask(max_tokens=4, sampling=SamplingParameters(repetition_penalty=penalty))
    (last,) = outputs(engine[1], request)[request.request_id]
    assert (last.error.code, last.error.details["argument"]) == ("E1104", "repetition_penalty")


def test_log_probabilities_come_with_each_token(engine):
    request = ask(max_tokens=5, log_probs=2)
    own = outputs(engine[1], request)[request.request_id]
    told = [
        (token, probs) for output in own for token, probs in zip(output.tokens, output.log_probs, strict=True)
    ]
    assert len(told) == 5
    for token, probs in told:
        assert probs.likeliest[0] == pytest.approx((token, probs.chosen))
        assert len(probs.likeliest) == 2
        assert probs.likeliest[0][1] >= probs.likeliest[1][1]


def test_a_seed_decides_the_choice(engine):
    def sampled(seed):
        return answer(engine[1], sampling=SamplingParameters(top_p=1.0, temperature=1.5, seed=seed))[0]

    assert sampled(7) == sampled(7) != sampled(8)
    assert sampled(2**64 - 1) == sampled(2**64 - 1)


def test_with_neither_top_k_nor_top_p_the_likeliest_token_is_taken(engine, greedy):
    for sampling in (SamplingParameters(temperature=1.5), SamplingParameters(top_k=0, top_p=0.0)):
        assert answer(engine[1], sampling=sampling)[0] == greedy


def test_the_longest_prompt_fits_and_no_longer_one(engine):
    assert answer(engine[1], prompt=[5] * (MAX_SEQ_LEN - 1))[1] is FinishReason.LENGTH
    request = ask(prompt=[5] * MAX_SEQ_LEN)
    assert outputs(engine[1], request)[request.request_id][-1].error.code == "E1002"


def test_cancelling_half_of_many_frees_their_blocks(engine):
    driver = engine[1]
    requests = [ask(max_tokens=200) for _ in range(32)]
    for request in requests:
        driver.submit(request)
    time.sleep(0.3)
    half = requests[::2]
    for request in half:
        driver.send(CancelFrame(request.request_id))
    ended = gathered(driver, {request.request_id for request in requests})
    for request in requests:
        last = ended[request.request_id][-1].finish_reason
        assert last is (FinishReason.CANCELLED if request in half else FinishReason.LENGTH)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        frame = next(driver.frames)
        if isinstance(frame, StatisticsFrame) and frame.statistics.kv_cache_blocks_used == 0:
            assert frame.statistics.active_requests == 0
            assert frame.statistics.kv_cache_blocks > 0
            return
        driver.submit(ask(max_tokens=1))
    pytest.fail("the blocks were not freed")


token_ids = st.integers(-3, VOCABULARY + 3)
numbers = st.sampled_from([0, 1e-9, 0.01, 0.5, 1, 1.5, 2, 2.5, 3e38, -1, -2.5])


@given(
    prompt=st.lists(token_ids, max_size=6) | st.just([5] * MAX_SEQ_LEN),
    max_tokens=st.sampled_from([1, 3, 1 << 30]),
    end_ids=st.frozensets(st.integers(0, VOCABULARY + 3), max_size=3) | st.just(frozenset(range(200))),
    stop_words=st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=3), max_size=3),
    bad_words=st.lists(st.lists(token_ids, min_size=1, max_size=3), max_size=3)
    | st.just([[5]] * 200)
    | st.just([[5] * 600] * 2),
    top_k=st.none() | st.sampled_from([-1, 0, 1, 5, 2**31 - 1]),
    top_p=st.none() | st.sampled_from([0.0, 1e-9, 0.5, 1.0]),
    temperature=st.none() | numbers,
    min_tokens=st.none() | st.sampled_from([-1, 0, 1, 2, 1 << 20]),
    seed=st.none() | st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1]),
    repetition_penalty=st.none() | numbers,
    presence_penalty=st.none() | numbers,
    frequency_penalty=st.none() | numbers,
)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_that_passes_ends_the_engine(
    engine, prompt, max_tokens, end_ids, stop_words, bad_words, **sampling
):
    process, driver = engine
    request = ask(
        prompt,
        max_tokens,
        end_ids=end_ids,
        stop_words=stop_words,
        bad_words=bad_words,
        sampling=SamplingParameters(**sampling),
    )
    driver.submit(request)
    if max_tokens > 3:
        driver.send(CancelFrame(request.request_id))
    (last,) = (own[-1] for own in gathered(driver, {request.request_id}).values())
    assert last.error is None or last.error.code.startswith("E1") or last.error.code == "E2403", last.error
    assert process.poll() is None
