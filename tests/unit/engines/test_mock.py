"""The mock engine: which tokens, how fast, and the faults it plays."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.engines.mock import MockEngine
from runner.protocol.engine import FinishReason, LogProbs, Request, SamplingParameters
from shared.errors import EngineInternalError, EngineStartFailed, InvalidArgument
from tests.support.mock_engine import COUNT, CRASH, DELAY_MS, FAIL, FIRST, HANG, RATE, mock_tokens, write_mock


@pytest.fixture
def start(tmp_path):
    engines = []

    def start(**rates: float) -> MockEngine:
        engines.append(MockEngine(write_mock(tmp_path / str(len(engines)), **rates)))
        return engines[-1]

    yield start
    for engine in engines:
        engine.shutdown()


class Clock:
    """The mock's clock, which goes on only while the mock waits: a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def start_by(start, monkeypatch):
    """An engine, and the clock that it goes by."""

    def start_by(**rates: float) -> tuple[MockEngine, Clock]:
        clock, engine = Clock(), start(**rates)
        monkeypatch.setattr("runner.engines.mock.time", clock)
        monkeypatch.setattr(engine._changed, "wait", clock.wait)
        return engine, clock

    return start_by


def run(engine: MockEngine, *requests: Request):
    """Run these to their ends: the tokens and the last output of each."""
    tokens, last = defaultdict(list), {}
    for request in requests:
        engine.submit(request)
    for step in engine.steps():
        for output in step:
            tokens[output.request_id] += output.tokens
            if output.error is not None or output.finish_reason is not FinishReason.NOT_FINISHED:
                last[output.request_id] = output
        if len(last) == len(requests):
            return tokens, last
    raise AssertionError("the steps ended")


@pytest.mark.parametrize("rate", [0, 20_000, 1e9])
def test_every_request_gets_its_tokens_in_order(start, rate):
    tokens, last = run(start(tokens_per_second=rate), *(Request(i, [1], 100 + i) for i in range(20)))
    assert tokens == {i: mock_tokens(100 + i) for i in range(20)}
    assert {output.finish_reason for output in last.values()} == {FinishReason.LENGTH}


def test_a_stream_has_its_rate_and_its_time_to_first_token(start_by):
    engine, clock = start_by(tokens_per_second=200, time_to_first_token=0.1)
    run(engine, Request(1, [1], 41))
    assert clock.now == pytest.approx(0.1 + 40 / 200)


def test_its_clock_is_that_of_the_machine(start):
    began = time.monotonic()
    run(start(tokens_per_second=200, time_to_first_token=0.1), Request(1, [1], 41))
    assert time.monotonic() - began >= 0.1 + 40 / 200


def test_steps_are_for_all_streams_together(start_by):
    engine, clock = start_by(step_seconds=0.02)
    for number in range(50):
        engine.submit(Request(number, [1], 5))
        clock.wait(0.001)
    steps, ended = [], 0
    for step in engine.steps():
        steps.append((clock.now, step))
        assert all(len(output.tokens) == 1 for output in step)
        ended += sum(output.finish_reason is FinishReason.LENGTH for output in step)
        if ended == 50:
            break
    assert len(steps) == 5
    assert all(len(step) == 50 for _, step in steps)
    assert steps[-1][0] - steps[0][0] == pytest.approx(0.06)  # the first is late, and the second is not


@pytest.mark.parametrize("step_seconds", [0, 0.001])
def test_a_request_has_its_own_rate_and_time_to_first_token(start_by, step_seconds):
    """While its neighbour continues as the engine is configured."""
    engine, clock = start_by(tokens_per_second=10_000, step_seconds=step_seconds)
    engine.submit(Request(1, [1, RATE, FIRST + 5, DELAY_MS, FIRST + 49], 9))
    engine.submit(Request(2, [1], 40))
    ended, tokens = {}, defaultdict(list)
    for step in engine.steps():
        for output in step:
            tokens[output.request_id] += output.tokens
            if output.finish_reason is FinishReason.LENGTH:
                ended[output.request_id] = clock.now
        if len(ended) == 2:
            break
    assert tokens == {1: mock_tokens(9), 2: mock_tokens(40)}
    assert ended == {1: pytest.approx(0.049 + 8 / 5, abs=0.002), 2: pytest.approx(0.01, abs=0.04)}


@pytest.mark.parametrize("prompt", [[RATE], [RATE, 1], [DELAY_MS, RATE, FIRST]])
def test_a_speed_without_a_number_is_refused(start, prompt):
    with pytest.raises(InvalidArgument, match="E1104"):
        start().submit(Request(1, prompt, 9))


def test_a_late_step_makes_up_for_it(start_by):
    engine, clock = start_by(tokens_per_second=1000)
    engine.submit(Request(1, [1], 1000))
    clock.wait(0.0105)
    assert len(next(engine.steps())[0].tokens) == 11


def end_by_hand(request: Request) -> tuple[list[int], FinishReason]:
    """What the request gets, found by going through the tokens."""
    tokens: list[int] = []
    least = request.sampling.min_tokens or 0
    for token in mock_tokens(request.max_tokens):
        if token in request.end_ids and len(tokens) >= least:
            return tokens, FinishReason.END_ID
        tokens.append(token)
        for word in request.stop_words:
            if tokens[-len(word) :] == list(word) and len(tokens) >= least:
                return tokens, FinishReason.STOP_WORDS
    return tokens, FinishReason.LENGTH


TOKEN = st.integers(FIRST - 1, FIRST + COUNT)


@given(
    max_tokens=st.integers(1, 3 * COUNT),
    end_ids=st.frozensets(TOKEN, max_size=2),
    stop_words=st.lists(
        st.lists(TOKEN, min_size=1, max_size=3)
        | st.builds(
            lambda start, n: mock_tokens(3 * COUNT)[start : start + n],
            st.integers(0, COUNT),
            st.integers(1, COUNT),
        ),
        max_size=2,
    ),
    min_tokens=st.none() | st.integers(0, 3 * COUNT),
)
def test_it_ends_where_end_ids_and_stop_words_say(
    tmp_path_factory, max_tokens, end_ids, stop_words, min_tokens
):
    engine = MockEngine(write_mock(tmp_path_factory.mktemp("mock") / "engine"))
    sampling = SamplingParameters(min_tokens=min_tokens)
    request = Request(1, [1], max_tokens, end_ids, stop_words, sampling)
    tokens, last = run(engine, request)
    assert (tokens[1], last[1].finish_reason) == end_by_hand(request)


def test_log_probabilities_where_they_are_asked_for(start):
    engine = start()
    engine.submit(Request(1, [1], 3, log_probs=2))
    engine.submit(Request(2, [1], 3))
    outputs = {output.request_id: output for step in [next(engine.steps())] for output in step}
    told = [LogProbs(-0.5, [(FIRST + i, -0.5), (FIRST + i + 1, -1.0)]) for i in range(3)]
    assert outputs[1].log_probs == told
    assert outputs[2].log_probs == ()


def test_a_failure_comes_half_way(start):
    tokens, last = run(start(), Request(1, [1, FAIL], 20))
    assert tokens[1] == mock_tokens(10)
    assert isinstance(last[1].error, EngineInternalError)


def test_a_crash_comes_after_the_first_token_however_late_its_step(start, monkeypatch):
    class Ended(Exception):
        pass

    def end(_status):
        raise Ended

    monkeypatch.setattr("os._exit", end)
    engine, tokens = start(tokens_per_second=1e9), []
    engine.submit(Request(1, [CRASH], 100))
    with suppress(Ended):
        for step in engine.steps():
            tokens += [token for output in step for token in output.tokens]
        pytest.fail("it has not ended")
    assert tokens == mock_tokens(1)


def test_a_request_that_hangs_can_be_cancelled(start):
    engine = start()
    engine.submit(Request(1, [HANG], 20))
    threading.Timer(0.05, engine.cancel, [1]).start()
    (output,) = next(engine.steps())
    assert (output.request_id, output.tokens, output.finish_reason) == (1, (), FinishReason.CANCELLED)


def test_a_cancelled_stream_gets_nothing_more(start):
    engine = start(tokens_per_second=1000)
    engine.submit(Request(1, [1], 10_000))
    engine.submit(Request(2, [1], 100))
    steps = engine.steps()
    next(steps)
    engine.cancel(1)
    of_first = []
    for step in steps:
        of_first += [output for output in step if output.request_id == 1]
        if any(output.finish_reason is FinishReason.LENGTH for output in step):
            break
    assert [output.finish_reason for output in of_first] == [FinishReason.CANCELLED]


def test_cancels_neither_hasten_steps_nor_put_them_off(start_by):
    engine, clock = start_by(step_seconds=0.02)
    for number in range(200):
        engine.submit(Request(number, [1], 10_000))
    tokens = 0
    for cancelled, step in enumerate(engine.steps()):
        tokens += sum(len(output.tokens) for output in step if output.request_id == 199)
        if cancelled == 198:
            break
        clock.wait(0.005)
        engine.cancel(cancelled)
    assert tokens == pytest.approx(clock.now / 0.02, abs=2)
    at_the_last = clock.now
    for step in engine.steps():
        if any(output.tokens for output in step):
            break
    assert clock.now - at_the_last <= 0.02


def test_cancelling_what_is_not_there_does_nothing(start):
    engine = start()
    engine.cancel(1)
    assert run(engine, Request(2, [1], 3))[0] == {2: mock_tokens(3)}


def test_the_steps_end_after_shutdown(start):
    engine = start()
    engine.submit(Request(1, [HANG], 20))
    threading.Timer(0.05, engine.shutdown).start()
    assert list(engine.steps()) == []


@pytest.mark.parametrize(
    "script",
    [
        "",
        "{}",
        "[1]",
        '{"first_token_id": 1, "token_count": 0}',
        '{"first_token_id": 1, "token_count": "x"}',
        '{"first_token_id": 1.5, "token_count": 5}',
        '{"first_token_id": 1000000000000, "token_count": 5}',
        '{"first_token_id": 1, "token_count": 100000000}',
    ],
)
def test_files_that_do_not_say_what_to_do_are_refused(tmp_path, script):
    directory = write_mock(tmp_path / "engine")
    (directory / "engine/mock.json").write_text(script)
    with pytest.raises(EngineStartFailed):
        MockEngine(directory)


def test_more_than_fit_wait_their_turn(start):
    engine = start(tokens_per_second=100, max_batch_size=2)
    for number in range(5):
        engine.submit(Request(number, [1], 11))
    assert (engine.statistics().active_requests, engine.statistics().queued_requests) == (2, 3)
    engine.cancel(2)  # while it waits
    begun, ended, cancelled = [], [], []
    for step in engine.steps():
        for output in step:
            if output.finish_reason is FinishReason.CANCELLED:
                cancelled.append(output.request_id)
                continue
            if output.request_id not in begun:
                begun.append(output.request_id)
            if output.finish_reason is FinishReason.LENGTH:
                ended.append(output.request_id)
        running = len(begun) - len(ended)
        assert running <= 2
        if len(ended) == 4:
            break
    assert (begun, cancelled) == ([0, 1, 3, 4], [2])
    assert (engine.statistics().active_requests, engine.statistics().queued_requests) == (0, 0)


@pytest.mark.parametrize(
    "config",
    [
        '{"tokens_per_second": -1}',
        '{"tokens_per_second": NaN}',
        '{"time_to_first_token": -1}',
        '{"time_to_first_token": NaN}',
        '{"time_to_first_token": 1e999}',
        '{"step_seconds": -1}',
        '{"step_seconds": NaN}',
        '{"max_batch_size": -5}',
        '{"max_batch_size": 1e999}',
        '{"max_seq_len": -1}',
        f'{{"step_seconds": 1{"0" * 400}}}',
    ],
)
def test_a_config_with_which_no_request_would_be_answered_is_refused(tmp_path, config):
    directory = write_mock(tmp_path / "engine")
    (directory / "config.json").write_text(config)
    with pytest.raises(EngineStartFailed):
        MockEngine(directory)
