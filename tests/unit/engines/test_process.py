"""The engine process, driven over its socket as the bridge drives it."""

from __future__ import annotations

import gc
import os
import signal
import socket
from contextlib import contextmanager
from pathlib import Path
from select import select

import pytest

from runner.engines import process as process_module
from runner.engines.catalogue import ENGINES, EngineKind
from runner.engines.process import EngineProcess, load_engine, main
from runner.protocol.engine import (
    MAX_TOKENS,
    Declaration,
    FinishReason,
    Limits,
    Output,
    Request,
    SamplingParameters,
)
from runner.protocol.frames import (
    CancelFrame,
    ReadyFrame,
    ShutdownFrame,
    StartFailedFrame,
    StepFrame,
    Tensor,
    receive,
)
from shared.errors import (
    UNEXPECTED,
    CTranslate2Error,
    EngineInternalError,
    EngineStartFailed,
    ParameterNotHonoured,
)
from tests.support.engine_process import Driver, engine_process
from tests.support.mock_engine import CRASH, HANG, mock_tokens, write_mock

ROOT = Path(__file__).resolve().parents[3]
DECLARED = Declaration("mock", Limits(MAX_TOKENS, MAX_TOKENS - 1), ENGINES["mock"].honours, seeds=True)


@pytest.fixture
def mock(tmp_path):
    with engine_process(write_mock(tmp_path / "engine")) as (process, driver):
        assert next(driver.frames) == ReadyFrame(DECLARED)
        yield process, driver


def test_streams_and_gathered_requests_get_the_same_tokens(mock):
    _, driver = mock
    requests = [Request(i, [1], 200, streaming=i % 2 == 0) for i in range(10)]
    tokens, last, _ = driver.run(*requests)
    assert tokens == {i: mock_tokens(200) for i in range(10)}
    assert {output.finish_reason for output in last.values()} == {FinishReason.LENGTH}


def test_a_gathered_request_has_one_output(mock):
    _, driver = mock
    assert driver.run(Request(1, [1], 200, streaming=False))[2] == 1


def test_a_gathered_request_has_the_log_probabilities_of_all_its_tokens(mock):
    _, driver = mock
    tokens, last, _ = driver.run(Request(1, [1], 200, streaming=False, log_probs=2))
    assert tokens == {1: mock_tokens(200)}
    assert [position.likeliest[0][0] for position in last[1].log_probs] == mock_tokens(200)


def test_a_gathered_request_that_is_cancelled_has_one_output(mock):
    _, driver = mock
    driver.submit(Request(1, [HANG], 200, streaming=False))
    driver.send(CancelFrame(1))
    assert next(driver.frames) == StepFrame([Output(1, (), FinishReason.CANCELLED)])


def test_a_malformed_request_fails_alone(mock):
    _, driver = mock
    driver.submit(Request(1, [1], 5), Tensor("temperature", "FP32", (1, 1), b"?"))
    (output,) = next(driver.frames).outputs
    assert (output.request_id, output.error.code) == (1, "E2403")
    assert driver.run(Request(2, [1], 5))[0] == {2: mock_tokens(5)}


@pytest.mark.parametrize("goodbye", [ShutdownFrame(), None], ids=["shutdown", "end of file"])
def test_it_ends_when_told_and_when_nobody_is_there(mock, goodbye):
    process, driver = mock
    driver.submit(Request(1, [HANG], 5))
    if goodbye:
        driver.send(goodbye)
    else:
        driver.connection.close()
    assert process.wait(10) == 0


def test_a_bridge_that_dies_with_answers_unread_leaves_no_traceback(mock):
    process, driver = mock
    driver.submit(Request(1, [1], 5))
    assert select([driver.connection], [], [], 20)[0]
    driver.connection.close()
    assert (process.wait(10), process.stderr.read()) == (0, "")


def test_a_crash_is_seen_after_its_first_token(mock):
    process, driver = mock
    driver.submit(Request(1, [CRASH], 5))
    (output,) = next(driver.frames).outputs
    assert list(output.tokens)[:1] == mock_tokens(1)
    assert list(driver.frames) == []
    assert process.wait(10) == 1


def test_a_frame_that_goes_the_other_way_ends_it(mock):
    process, driver = mock
    driver.send(ReadyFrame(DECLARED))
    assert list(driver.frames) == []
    assert process.wait(10) == 0


def test_an_unknown_kind_says_so(tmp_path):
    with engine_process(tmp_path, kind="abacus") as (process, driver):
        assert next(driver.frames) == StartFailedFrame(
            str(EngineStartFailed(reason=f'there is no engine "abacus", only {", ".join(ENGINES)}'))
        )
        assert process.wait(10) == 1


ABACUS = EngineKind(name="abacus", implementation="", honours=frozenset({"top_k"}))


class Engine:
    """An engine whose methods are what a test says."""

    limits = Limits(100, 99)

    def __init__(self, submit=lambda _: None, steps=lambda: iter(())) -> None:
        self.submit = submit
        self.steps = steps

    def cancel(self, request_id) -> None: ...

    def shutdown(self) -> None: ...


@contextmanager
def serving(engine: Engine):
    """`EngineProcess` in a child of this process, and the driver of its socket."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            EngineProcess(ABACUS, engine, Path("/nowhere"), theirs).serve()
        except BaseException:
            os._exit(1)
        os._exit(0)
    theirs.close()
    with ours:
        yield pid, Driver(ours)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for_signal():
    signal.pause()
    yield []


def test_a_hanging_engine_does_not_outlive_the_bridge():
    with serving(Engine(steps=wait_for_signal)) as (pid, driver):
        next(driver.frames)
        driver.connection.close()
        assert status_of(pid) == 1


def test_steps_that_end_by_themselves_end_the_process_with_an_error():
    with serving(Engine()) as (pid, driver):
        assert list(driver.frames) == [
            ReadyFrame(Declaration(ABACUS.name, Engine.limits, ABACUS.honours, ABACUS.seeds))
        ]
        assert status_of(pid) == 1


def test_what_the_engine_has_loaded_is_not_collected_while_it_serves():
    loaded = [[]]

    def steps():
        yield [Output(1, [any(one is loaded for one in gc.get_objects())], FinishReason.LENGTH)]
        signal.pause()

    with serving(Engine(steps=steps)) as (pid, driver):
        next(driver.frames)
        (output,) = next(driver.frames).outputs
        driver.connection.close()
        status_of(pid)
    assert list(output.tokens) == [False]


def test_what_an_engine_does_not_honour_is_refused():
    with serving(Engine(steps=wait_for_signal)) as (pid, driver):
        next(driver.frames)
        driver.submit(Request(1, [1], 5, sampling=SamplingParameters(seed=1)))
        (output,) = next(driver.frames).outputs
        assert output.error.code == ParameterNotHonoured.code
        driver.connection.close()
        status_of(pid)


def test_an_unexpected_error_is_coded_and_logged_but_not_shown(capfd):
    def submit(_):
        raise KeyError("internal detail")

    with serving(Engine(submit=submit, steps=wait_for_signal)) as (pid, driver):
        next(driver.frames)
        driver.submit(Request(1, [1], 5))
        (output,) = next(driver.frames).outputs
        driver.connection.close()
        status_of(pid)
    assert str(output.error) == str(EngineInternalError(reason=UNEXPECTED))
    assert "request 'id-1'" in (log := capfd.readouterr().err)
    assert "internal detail" in log


def test_a_flood_of_unexpected_errors_has_one_traceback_a_second(capfd, monkeypatch):
    now = 0.0
    monkeypatch.setattr("runner.engines.process.time.monotonic", lambda: now)
    tracebacks = process_module._Tracebacks()
    for number in range(100):
        tracebacks.coded(RuntimeError("x"), f"id-{number}")
    now = 1.5
    tracebacks.coded(RuntimeError("x"), "id-last")
    log = capfd.readouterr().err
    assert log.count("RuntimeError: x") == 2
    assert "request 'id-0':" in log
    assert "99 tracebacks were left out\nrequest 'id-last':" in log


def test_a_coded_error_while_loading_is_passed_on(monkeypatch, tmp_path):
    def load(_):
        raise CTranslate2Error(reason="no such file")

    monkeypatch.setattr("runner.engines.mock.MockEngine", load)
    ours, theirs = socket.socketpair()
    with ours:
        arguments = ["--kind", "mock", "--engine-dir", str(tmp_path), "--socket-fd", str(theirs.detach())]
        assert main(arguments) == 1
        ours.shutdown(socket.SHUT_WR)
        assert next(receive(ours)) == StartFailedFrame(str(CTranslate2Error(reason="no such file")))


def test_any_other_error_while_loading_is_coded(monkeypatch, tmp_path):
    def load(_):
        raise ZeroDivisionError

    monkeypatch.setattr("runner.engines.mock.MockEngine", load)
    with pytest.raises(EngineStartFailed, match=f": {UNEXPECTED}. "):
        load_engine(ENGINES["mock"], tmp_path)
