"""The engine bridge in a real tritonserver, over gRPC, with the mock engine."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import threading
import time

import grpc
import pytest

from runner.protocol.engine import FinishReason, Request, SamplingParameters
from runner.protocol.feed import EngineState
from runner.protocol.tensors import RawTensor
from shared.layout import PROJECT_ROOT, Layout
from tests.support.mock_engine import CRASH, FAIL, HANG, mock_tokens, write_mock
from tests.support.processes import marked, wait_gone
from tests.support.tensorrt_llm_engine import HANG as ENGINE_HANG
from tests.support.tensorrt_llm_engine import STAND_IN, stand_in_tokens, write_engine
from tests.support.triton import Answer, Triton, triton


@pytest.fixture
def serve(tmp_path):
    """`serve(tokens_per_second=..., ...)`: a server, with further parameters of the bridge."""

    def start(tokens_per_second: float = 0, **parameters: object):
        engine = write_mock(tmp_path / "engine", tokens_per_second=tokens_per_second)
        return triton(tmp_path, engine, **parameters)

    return start


def assert_whole(answers: list[Answer], tokens: int) -> None:
    for answer in answers:
        assert answer.error == ""
        assert answer.tokens == mock_tokens(tokens)
        assert answer.finals == 1
        assert answer.finish_reasons[-1] == FinishReason.LENGTH
        assert set(answer.finish_reasons[:-1]) <= {FinishReason.NOT_FINISHED}


@pytest.mark.parametrize("rate", [0, 500], ids=["flat out", "at a rate"])
def test_64_streams_get_every_token_in_order(serve, rate):
    with serve(rate) as server:
        assert_whole(server.run_all(Request(i, [1, 2, 3], 512) for i in range(64)), 512)
        server.engine.wait_in_flight(0)


def test_a_request_that_does_not_stream_has_one_response(serve):
    with serve(2000) as server:
        answer = server.run(Request(1, [1], 300, streaming=False))
        assert [len(piece) for piece in answer.pieces] == [300]
        assert_whole([answer], 300)


def test_tokens_that_come_fast_are_merged_into_a_response_every_8_ms(serve):
    with serve(2000) as server:
        answer = server.run(Request(1, [1], 2000))
        assert_whole([answer], 2000)
        assert len(answer.pieces) <= 140  # in one second


def test_tokens_that_come_slowly_come_one_by_one(serve):
    with serve(20) as server:

        def sizes() -> list[int]:
            answer = server.run(Request(1, [1], 20))
            assert_whole([answer], 20)
            return [len(piece) for piece in answer.pieces]

        # A machine that stalls for 50 ms merges two; a bridge that holds tokens back does so each time.
        assert any(sizes() == [1] * 20 for _ in range(20))


def test_a_cancelled_call_stops_the_engines_work(serve):
    with serve(100) as server:
        calls = [server.open(Request(1, [1], 1_000_000)), server.open(Request(2, [HANG], 5))]
        next(calls[0])
        server.engine.wait_in_flight(2)
        for call in calls:
            call.cancel()
        server.engine.wait_in_flight(0)
        assert_whole([server.run(Request(3, [1], 5))], 5)


def test_a_failure_fails_one_request_after_its_tokens(serve):
    with serve(1000) as server:
        failed, other = server.run_all([Request(1, [FAIL], 100), Request(2, [1], 200)])
        assert failed.tokens == mock_tokens(50)
        assert failed.error.startswith("E2405 EngineInternalError: ")
        assert_whole([other], 200)


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (RawTensor("input_lengths", "INT32", (1, 1), struct.pack("<i", 9)), "E2403"),
        (RawTensor("stop_words_list", "INT32", (1, 2, 1), struct.pack("<2i", 5, 7)), "E2403"),
        (RawTensor("beam_width", "INT32", (1, 1), struct.pack("<i", 4)), "E2404"),
        (RawTensor("return_log_probs", "BOOL", (1, 1), b"\1"), "E2404"),
    ],
)
def test_what_the_contract_does_not_allow_is_refused(serve, tensor, code):
    with serve() as server:
        assert server.run(Request(1, [1], 5), tensor).error.startswith(code)


def test_sampling_parameters_arrive(serve):
    with serve() as server:
        request = Request(1, [1], 100, frozenset({103}), sampling=SamplingParameters(min_tokens=4))
        answer = server.run(request)
        assert answer.tokens == mock_tokens(53)
        assert answer.finish_reasons[-1] == FinishReason.END_ID


def test_when_the_engine_is_killed_all_in_flight_fail_and_later_ones_work(serve):
    with serve(100) as server:
        requests = [Request(i, [1], 1_000_000) for i in range(16)]
        killed_at = []

        def kill():
            server.engine.wait_in_flight(16)
            killed_at.append(time.monotonic())
            os.kill(server.engine_pid(), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        answers = server.run_all(requests)
        killer.join()
        assert time.monotonic() - killed_at[0] < 5
        for answer in answers:
            assert answer.error.startswith("E2400 EngineProcessDied: ")
            assert "signal 9" in answer.error
            assert answer.tokens == mock_tokens(len(answer.tokens))
        server.wait_engine(EngineState.READY)
        assert server.engine.status.restarts == 1
        assert_whole([server.run(Request(99, [1], 10))], 10)


def test_a_crash_is_told_after_the_tokens_before_it(serve):
    with serve(100) as server:
        answer = server.run(Request(1, [CRASH], 10))
        assert answer.tokens == mock_tokens(1)
        assert "it ended with exit status 1" in answer.error


def test_it_is_not_started_again_for_ever(serve):
    with serve(100, max_restarts=1) as server:
        server.run(Request(1, [CRASH], 10))
        assert server.run(Request(2, [1], 10)).error.startswith("E2401 EngineNotReady: ")
        server.wait_engine(EngineState.READY)
        server.run(Request(3, [CRASH], 10))
        server.wait_engine(EngineState.GIVEN_UP)
        assert server.run(Request(4, [1], 10)).error.startswith("E2402 EngineGaveUp: ")
        assert not [
            command for command in marked(server.mark).values() if "runner.engines.process" in command
        ]
        assert server.engine.status.restarts == 1


ENGINE_THAT_WAITS = """
import os, socket, sys
sys.path.insert(0, os.environ["PYTHONPATH"])
from pathlib import Path
from runner.protocol.frames import StartFailedFrame, encode
from shared.errors import HostsMissing

away = Path(__file__).with_name("away")
if not away.exists():
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
with away.open("a") as waits:
    waits.write(".")
error = HostsMissing(reason="after 0 s, GPUs needed: 2; GPUs of this host: 1, of the others: none")
socket.socket(fileno=int(sys.argv[-1])).sendall(encode(StartFailedFrame(str(error))))
sys.exit(1)
"""


def test_a_wait_for_other_hosts_is_no_death(serve, tmp_path):
    program, script, away = (tmp_path / name for name in ("python", "engine_that_waits.py", "away"))
    script.write_text(ENGINE_THAT_WAITS)
    # A #! line could not hold a path with a space.
    command = shlex.join(map(str, [Layout.current().engine_python("mock"), script]))
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    with serve(100, max_restarts=1, engine_python=program) as server:
        away.touch()
        server.run(Request(1, [CRASH], 10))
        server.wait_for(lambda: len(away.read_text()) >= 4)
        assert server.run(Request(2, [1], 10)).error.startswith("E2401 EngineNotReady: ")
        away.unlink()
        server.wait_engine(EngineState.READY)
        assert_whole([server.run(Request(3, [1], 10))], 10)
        assert server.engine.status.restarts == 1


def test_sigterm_leaves_nothing(serve):
    with serve(100) as server:
        assert server.engine_pid()
        server.process.terminate()
        assert server.process.wait(20) == 0
        assert wait_gone(server.mark) == {}
        assert not server.feed_path.exists()


def test_kill_9_of_triton_leaves_no_engine(serve):
    with serve(100) as server:
        call = server.open(Request(1, [1], 1_000_000))
        next(call)
        server.process.kill()
        with pytest.raises(grpc.RpcError):
            list(call)
        assert wait_gone(server.mark) == {}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"engine_kind": "abacus"}, 'E2407 EngineStartFailed: The engine process cannot serve: there is no engine "abacus"'),
        ({"engine_python": "/bin/false"}, "E2407 EngineStartFailed: The engine process cannot serve: it ended with exit status 1"),
        ({"engine_python": "/nowhere/python"}, "E2407 EngineStartFailed: The engine process cannot serve: it ended with exit status 127"),
        ({"start_timeout_seconds": 0.001}, "E2407 EngineStartFailed: The engine process cannot serve: it was not ready in time"),
        ({"engine_kind": "tensorrt_llm"}, "E2407 EngineStartFailed: The engine process cannot serve: the engine's config.json cannot be read"),
        ({"max_restarts": "many"}, "E2406 BridgeMisconfigured: The engine bridge cannot start: the parameter max_restarts of the model is not a number of at least 0."),
        ({"feed_timeout_seconds": 0}, "E2406 BridgeMisconfigured: The engine bridge cannot start: the parameter feed_timeout_seconds of the model is not a number of at least 0.001."),
        ({"engine_path": None}, "E2406 BridgeMisconfigured: The engine bridge cannot start: the parameter engine_path"),
        ({"feed_path": "/nowhere/feed"}, "E2406 BridgeMisconfigured: The engine bridge cannot start: No such file"),
        ({"feed_path": "/" + 200 * "f"}, "E2406 BridgeMisconfigured: The engine bridge cannot start: File name too long"),
    ],
)  # fmt: skip
def test_an_engine_that_cannot_start_fails_the_load_with_a_code(tmp_path, parameters, expected):
    server = Triton(tmp_path, write_mock(tmp_path / "engine"), **parameters)
    assert server.process.wait(30) != 0
    assert expected in server.log.read_text()
    assert server.end() == {}


def test_statistics_of_the_engine_are_told(tmp_path):
    engine = write_engine(tmp_path / "engine")
    path = f"{PROJECT_ROOT}:{STAND_IN}"
    with triton(tmp_path, engine, engine_kind="tensorrt_llm", engine_path=path) as server:
        call = server.open(Request(1, [ENGINE_HANG], 10))
        server.wait_for(lambda: server.engine.statistics.active_requests == 1)
        assert server.engine.statistics.kv_cache_blocks > server.engine.statistics.kv_cache_blocks_used > 0
        call.cancel()
        assert server.run(Request(2, [10, 20], 100)).tokens == stand_in_tokens([10, 20], 100)
