"""Feeds: what the engine's steps gave, in a real tritonserver, with the mock engine."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from runner.protocol.engine import FinishReason, Request
from runner.protocol.feed import FEED_PARAMETER, EngineState
from tests.support.feed import Feed, feed, feed_message, submit
from tests.support.mock_engine import CRASH, FAIL, HANG, mock_tokens, write_mock
from tests.support.triton import triton

FOR_EVER = 1_000_000_000
STEPS_OF_AN_HOUR = 3600 * 36


@pytest.fixture
def serve(tmp_path):
    """`serve(tokens_per_second=..., ...)`: a server, with further parameters of the bridge."""

    def start(tokens_per_second: float = 0, **parameters: object):
        return triton(
            tmp_path, write_mock(tmp_path / "engine", tokens_per_second=tokens_per_second), **parameters
        )

    return start


def memory_of(pid: int) -> int:
    """Resident memory in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def assert_whole(feed: Feed, number: int, tokens: int) -> None:
    assert feed.tokens[number] == mock_tokens(tokens)
    assert [end.finish_reason for end in feed.ends[number]] == [FinishReason.LENGTH]


def ends_of(call) -> list[tuple[str, int]]:
    """Of each response of a gRPC call, its error and how many outputs it has; all must be final."""
    responses = list(call)
    assert all(it.infer_response.parameters["triton_final_response"].bool_param for it in responses)
    return [(it.error_message, len(it.infer_response.outputs)) for it in responses]


def test_every_token_of_512_comes_over_the_feed_and_only_the_ends_over_grpc(serve):
    with serve(200) as server, feed(server) as it:
        numbers = range(1, 513)
        call = submit(server, it.number, {number: Request(0, [1], 50 + number % 3) for number in numbers})
        it.wait_ends(numbers)
        for number in numbers:
            assert_whole(it, number, 50 + number % 3)
        assert ends_of(call) == [("", 0)] * 512


def test_a_feed_says_at_once_how_the_engine_is(serve):
    with serve() as server, feed(server) as it:
        it.wait_status(lambda status: status.state is EngineState.READY)
        (status,) = it.statuses
        assert status.restarts == 0
        assert status.declaration.kind == "mock"


def test_two_feeds_at_once_get_their_own(serve):
    with serve(2000) as server, feed(server) as one, feed(server) as other:
        assert one.number != other.number
        calls = [
            submit(server, one.number, {number: Request(0, [1], 100) for number in range(1, 33)}),
            submit(server, other.number, {number: Request(0, [1], 200) for number in range(1, 33)}),
        ]
        direct = server.run(Request(1, [1], 300))
        one.wait_ends(range(1, 33))
        other.wait_ends(range(1, 33))
        for number in range(1, 33):
            assert_whole(one, number, 100)
            assert_whole(other, number, 200)
        assert direct.tokens == mock_tokens(300)
        assert [ends_of(call) for call in calls] == [[("", 0)] * 32] * 2


def test_a_reader_that_stops_gets_everything_later_merged_and_takes_nobodys_memory(serve):
    with serve(2000) as server, feed(server) as stopped, feed(server) as other:
        before = memory_of(server.process.pid)
        calls = [submit(server, stopped.number, {number: Request(0, [1], 4000) for number in range(1, 65)})]
        calls += [submit(server, other.number, {1: Request(0, [1], 4000)})]
        other.wait_ends([1])
        assert_whole(other, 1, 4000)
        server.engine.wait_in_flight(0)
        assert memory_of(server.process.pid) - before < 16 << 20
        stopped.wait_ends(range(1, 65))
        for number in range(1, 65):
            assert_whole(stopped, number, 4000)
        assert stopped.steps < other.steps / 2
        assert [end for call in calls for end in ends_of(call)] == [("", 0)] * 65


def test_a_slow_reader_loses_nothing(serve):
    with serve(2000) as server, feed(server) as it:
        call = submit(server, it.number, {number: Request(0, [1], 2000) for number in range(1, 33)})
        while len(it.ends) < 32:
            it.next_step()
            time.sleep(0.02)
        for number in range(1, 33):
            assert_whole(it, number, 2000)
        assert ends_of(call) == [("", 0)] * 32


def test_the_requests_of_a_reader_that_dies_are_cancelled_and_of_no_other(serve):
    with serve(500) as server, feed(server) as other:
        dying = Feed(server.feed_path)
        call = submit(server, dying.number, {number: Request(0, [1], FOR_EVER) for number in range(1, 33)})
        kept = submit(server, other.number, {1: Request(0, [1], 500)})
        while len(dying.tokens) < 32:
            dying.next_step()
        dying.close()
        assert ends_of(call) == [("", 0)] * 32
        other.wait_ends([1])
        assert_whole(other, 1, 500)
        assert ends_of(kept) == [("", 0)]
        server.engine.wait_in_flight(0)


@pytest.mark.parametrize("late", [False, True], ids=["its requests run", "its requests have ended"])
def test_a_reader_that_reads_nothing_is_given_up(serve, late):
    with serve(0, feed_timeout_seconds=0.5) as server, feed(server) as it:
        tokens = 200_000 if late else FOR_EVER
        call = submit(server, it.number, {number: Request(0, [1], tokens) for number in range(1, 9)})
        list(call)
        server.wait_for(lambda: "a feed is closed: its client" in server.log.read_text())
        server.engine.wait_in_flight(0)
        it.read_to_the_end()


def test_a_cancel_that_is_the_first_for_half_a_minute_ends_nothing_else(serve):
    with serve(20) as server, feed(server) as it:
        call = submit(server, it.number, {number: Request(0, [1], 700) for number in (1, 2)})
        until = time.monotonic() + 31  # longer than an engine may take nothing that is sent to it
        while time.monotonic() < until:
            it.next_step()
        it.cancel(1)
        it.wait_ends([1, 2])
        assert [end.finish_reason for end in it.ends[1]] == [FinishReason.CANCELLED]
        assert_whole(it, 2, 700)
        assert ends_of(call) == [("", 0)] * 2
        assert server.engine.status.restarts == 0


def test_a_cancel_ends_a_request_once_and_may_come_before_it(serve):
    with serve(100) as server, feed(server) as it:
        it.cancel(2)
        it.cancel(99)
        call = submit(server, it.number, {1: Request(0, [1], FOR_EVER), 2: Request(0, [HANG], 5)})
        it.wait_ends([2])
        it.cancel(1)
        it.cancel(1)
        it.wait_ends([1])
        assert [it.ends[number][0].finish_reason for number in (1, 2)] == [FinishReason.CANCELLED] * 2
        assert it.tokens[2] == []
        assert ends_of(call) == [("", 0)] * 2
        server.engine.wait_in_flight(0)


def test_a_client_that_breaks_off_its_grpc_stream_is_told_of_the_end(serve):
    with serve(100) as server, feed(server) as it:
        call = submit(server, it.number, {1: Request(0, [1], FOR_EVER)})
        it.next_step()
        call.cancel()
        it.wait_ends([1])
        assert it.ends[1][0].finish_reason is FinishReason.CANCELLED


@pytest.mark.parametrize("value", [4711, 0, -1, "text", None])
def test_a_feed_that_is_not_there_is_refused_over_grpc(serve, value):
    with serve() as server:
        made = feed_message(4711, 1, Request(0, [1], 5))
        if value is None:
            del made.parameters[FEED_PARAMETER]
        elif isinstance(value, str):
            made.parameters[FEED_PARAMETER].string_param = value
        else:
            made.parameters[FEED_PARAMETER].int64_param = value
        (response,) = server.stub.ModelStreamInfer(iter([made]), timeout=20)
        assert response.error_message.startswith("E2403 MalformedRequest: ")
        assert response.infer_response.id == "1"


def test_what_triton_itself_refuses_names_the_request(serve):
    with serve() as server, feed(server) as it:
        made = feed_message(it.number, 17, Request(0, [1], 5))
        made.inputs[0].datatype = "FP32"
        (response,) = server.stub.ModelStreamInfer(iter([made]), timeout=20)
        assert response.error_message
        assert response.infer_response.id == "17"


def test_errors_come_over_the_feed_after_the_tokens_before_them(serve):
    with serve(1000) as server, feed(server) as it:
        call = submit(server, it.number, {1: Request(0, [FAIL], 100), 2: Request(0, [], 5)})
        it.wait_ends([1, 2])
        assert it.tokens[1] == mock_tokens(50)
        assert str(it.ends[1][0].error).startswith("E2405 EngineInternalError: ")
        assert str(it.ends[2][0].error).startswith("E2403 MalformedRequest: ")
        assert ends_of(call) == [("", 0)] * 2


@pytest.mark.parametrize("how", ["killed", "crashes"])
def test_when_the_engine_dies_each_request_ends_once_and_later_ones_work(serve, how):
    with serve(100) as server, feed(server) as it:
        numbers = range(1, 129)
        call = submit(server, it.number, {number: Request(0, [1], FOR_EVER) for number in numbers})
        while len(it.tokens) < len(numbers):
            it.next_step()
        if how == "killed":
            os.kill(server.engine_pid(), signal.SIGKILL)
        else:
            server.run(Request(0, [CRASH], 5))
        it.wait_ends(numbers)
        for number in numbers:
            (end,) = it.ends[number]
            assert str(end.error).startswith("E2400 EngineProcessDied: ")
            assert it.tokens[number] == mock_tokens(len(it.tokens[number]))
        assert ends_of(call) == [("", 0)] * len(numbers)
        it.wait_status(lambda status: status.state is EngineState.READY and status.restarts == 1)
        assert EngineState.RESTARTING in {status.state for status in it.statuses}
        call = submit(server, it.number, {1000: Request(0, [1], 5)})
        it.wait_ends([1000])
        assert_whole(it, 1000, 5)
        assert ends_of(call) == [("", 0)]


def test_sigterm_of_triton_under_load_lets_requests_end_and_kill_ends_the_feed(serve):
    with serve(100) as server, feed(server) as it:
        requests = {number: Request(0, [1], 100) for number in range(1, 65)}
        call = submit(server, it.number, {**requests, 99: Request(0, [1], FOR_EVER)})
        while len(it.tokens) < 65:
            it.next_step()
        server.process.terminate()
        it.wait_ends(requests)
        for number in requests:
            assert_whole(it, number, 100)
        server.process.kill()
        with pytest.raises(EOFError):
            it.wait_ends([99])
        assert it.tokens[99] == mock_tokens(len(it.tokens[99]))
        call.cancel()


@pytest.mark.parametrize(
    "garbage",
    [b"\0", b"\xff" * 13, b"\t\0\0\0\2" + b"\0" * 8 + b"GET / HTTP/1.1\r\n", os.urandom(100_000)],
    ids=["too short a length", "no such frame", "a frame and then text", "noise"],
)
def test_a_client_that_sends_no_frames_loses_its_feed_alone(serve, garbage):
    with serve(500) as server, feed(server) as other:
        hostile = Feed(server.feed_path)
        call = submit(server, hostile.number, {1: Request(0, [1], FOR_EVER)})
        kept = submit(server, other.number, {1: Request(0, [1], 200)})
        hostile.next_step()
        with suppress(ConnectionError):
            hostile.socket.sendall(garbage)
        hostile.read_to_the_end()
        hostile.close()
        assert ends_of(call) == [("", 0)]
        other.wait_ends([1])
        assert_whole(other, 1, 200)
        assert ends_of(kept) == [("", 0)]


def test_there_is_room_for_so_many_feeds_and_room_again_when_they_close(serve):
    with serve() as server:
        feeds = [Feed(server.feed_path) for _ in range(16)]
        with pytest.raises((StopIteration, ConnectionError)):
            Feed(server.feed_path)
        assert len({it.number for it in feeds}) == 16
        feeds.pop().close()

        def opens() -> bool:
            try:
                feeds.append(Feed(server.feed_path))
            except (StopIteration, ConnectionError):
                return False
            return True

        server.wait_for(opens)
        for it in feeds:
            it.close()


def test_a_reader_that_stops_for_good_is_closed_when_16_mib_wait_for_it(serve):
    with serve(0) as server, feed(server) as it, feed(server) as other:
        before = memory_of(server.process.pid)
        # Nothing is read: the socket holds some hundred kB, and the rest waits in the bridge.
        call = submit(server, it.number, {number: Request(0, [1], FOR_EVER) for number in range(1, 9)})
        assert ends_of(call) == [("", 0)] * 8
        # The requests end before the bridge says why.
        server.wait_for(
            lambda: "its client is too far behind; requests cancelled: 8" in server.log.read_text()
        )
        assert memory_of(server.process.pid) - before < 64 << 20
        it.read_to_the_end()
        waited = sum(map(len, it.tokens.values())) * 4
        assert waited < 16 << 20
        call = submit(server, other.number, {1: Request(0, [1], 100)})
        other.wait_ends([1])
        assert_whole(other, 1, 100)
        assert ends_of(call) == [("", 0)]


def test_as_many_steps_as_in_an_hour_leave_the_memory_as_it_was(tmp_path):
    engine = write_mock(tmp_path / "engine", step_seconds=1e-6, max_seq_len=STEPS_OF_AN_HOUR + 1)
    with triton(tmp_path, engine) as server, feed(server) as it:
        call = submit(server, it.number, {1: Request(0, [1], STEPS_OF_AN_HOUR)})
        memory = []
        for at_least in (STEPS_OF_AN_HOUR // 10, STEPS_OF_AN_HOUR):
            while len(it.tokens[1]) < at_least:
                it.next_step()
            memory.append([memory_of(pid) for pid in (server.process.pid, server.engine_pid())])
        it.wait_ends([1])
        assert_whole(it, 1, STEPS_OF_AN_HOUR)
        assert ends_of(call) == [("", 0)]
        for before, after in zip(*memory, strict=True):
            assert after - before < 4 << 20
