"""Feeds: what the engine's steps gave, in a real tritonserver, with the mock engine."""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from runner.protocol.engine import FinishReason, Request
from runner.protocol.feed import (
    FEED_PARAMETER,
    LARGEST_REQUEST,
    EngineState,
    FeedFrame,
    encode_cancel,
    encode_request,
)
from runner.protocol.framing import framed
from runner.protocol.tensors import RawTensor
from runner.protocol.tokens import request_tensors
from runner.triton.model_repository import MODEL_NAME
from shared.errors import TritonUnknownError
from tests.support.feed import Feed, feed
from tests.support.mock_engine import CRASH, FAIL, HANG, mock_tokens, write_mock
from tests.support.triton import message, triton

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


def level_of(server, event: str) -> str:
    """The level of an event in Triton's log, once it is there: I, W or E."""

    def lines() -> list[str]:
        return [line for line in server.log.read_text().splitlines() if event in line]

    server.wait_for(lambda: bool(lines()))
    return lines()[0][0]


def test_every_token_of_512_comes(serve):
    with serve(200) as server, feed(server) as it:
        numbers = range(1, 513)
        it.submit({number: Request(0, [1], 50 + number % 3) for number in numbers})
        it.wait_ends(numbers)
        for number in numbers:
            assert_whole(it, number, 50 + number % 3)


def test_a_feed_says_at_once_how_the_engine_is(serve):
    with serve() as server, feed(server) as it:
        it.wait_status(lambda status: status.state is EngineState.READY)
        (status,) = it.statuses
        assert status.restarts == 0
        assert status.declaration.kind == "mock"


def test_two_feeds_at_once_get_their_own(serve):
    with serve(2000) as server, feed(server) as one, feed(server) as other:
        one.submit({number: Request(0, [1], 100) for number in range(1, 33)})
        other.submit({number: Request(0, [1], 200) for number in range(1, 33)})
        direct = server.run(Request(1, [1], 300))
        one.wait_ends(range(1, 33))
        other.wait_ends(range(1, 33))
        for number in range(1, 33):
            assert_whole(one, number, 100)
            assert_whole(other, number, 200)
        assert direct.tokens == mock_tokens(300)


def test_a_reader_that_stops_gets_everything_later_merged_and_takes_nobodys_memory(serve):
    with serve(2000) as server, feed(server) as stopped, feed(server) as other:
        before = memory_of(server.process.pid)
        stopped.submit({number: Request(0, [1], 4000) for number in range(1, 65)})
        other.submit({1: Request(0, [1], 4000)})
        other.wait_ends([1])
        assert_whole(other, 1, 4000)
        server.engine.wait_in_flight(0)
        assert memory_of(server.process.pid) - before < 16 << 20
        stopped.wait_ends(range(1, 65))
        for number in range(1, 65):
            assert_whole(stopped, number, 4000)
        assert stopped.steps < other.steps / 2


def test_a_slow_reader_loses_nothing(serve):
    with serve(2000) as server, feed(server) as it:
        it.submit({number: Request(0, [1], 2000) for number in range(1, 33)})
        while len(it.ends) < 32:
            it.next_step()
            time.sleep(0.02)
        for number in range(1, 33):
            assert_whole(it, number, 2000)


def test_the_requests_of_a_reader_that_dies_are_cancelled_and_of_no_other(serve):
    with serve(500) as server, feed(server) as other:
        dying = Feed(server.feed_path)
        dying.submit({number: Request(0, [1], FOR_EVER) for number in range(1, 33)})
        other.submit({1: Request(0, [1], 500)})
        while len(dying.tokens) < 32:
            dying.next_step()
        dying.close()
        other.wait_ends([1])
        assert_whole(other, 1, 500)
        server.engine.wait_in_flight(0)
        # Everybody may leave, and Ctrl-C does so in the middle of an answer.
        assert level_of(server, "closed a feed: its client is gone; requests cancelled: 32") == "I"


@pytest.mark.parametrize("late", [False, True], ids=["its requests run", "its requests have ended"])
def test_a_reader_that_reads_nothing_is_given_up(serve, late):
    with serve(0, feed_timeout_seconds=0.5) as server, feed(server) as it:
        tokens = 200_000 if late else FOR_EVER
        it.submit({number: Request(0, [1], tokens) for number in range(1, 9)})
        assert level_of(server, "closed a feed: its client does not read") == "W"
        server.engine.wait_in_flight(0)
        it.read_to_the_end()


def test_a_cancel_that_is_the_first_for_half_a_minute_ends_nothing_else(serve):
    with serve(20) as server, feed(server) as it:
        it.submit({number: Request(0, [1], 700) for number in (1, 2)})
        until = time.monotonic() + 31  # longer than an engine may take nothing that is sent to it
        while time.monotonic() < until:
            it.next_step()
        it.cancel(1)
        it.wait_ends([1, 2])
        assert [end.finish_reason for end in it.ends[1]] == [FinishReason.CANCELLED]
        assert_whole(it, 2, 700)
        assert server.engine.status.restarts == 0


def test_a_cancel_ends_a_request_once_and_may_come_before_the_engine_has_it(serve):
    with serve(100) as server, feed(server) as it:
        it.cancel(99)
        it.submit({1: Request(0, [1], FOR_EVER)})
        # The bridge reads both at once, before Triton can have handed the request over.
        it.socket.sendall(it.frame(2, Request(0, [HANG], 5)) + encode_cancel(2))
        it.wait_ends([2])
        it.cancel(1)
        it.cancel(1)
        it.wait_ends([1])
        assert [it.ends[number][0].finish_reason for number in (1, 2)] == [FinishReason.CANCELLED] * 2
        assert it.tokens[2] == []
        server.engine.wait_in_flight(0)


def test_requests_of_a_reader_that_leaves_at_once_do_not_run(serve):
    with serve(100) as server:
        for _ in range(8):
            leaving = Feed(server.feed_path)
            leaving.submit({number: Request(0, [HANG], 5) for number in range(1, 129)})
            leaving.close()
        server.engine.wait_in_flight(0)


@pytest.mark.parametrize("value", [4711, 0, -1, 2**62, "text"])
def test_a_feed_takes_no_requests_of_triton_s_other_clients(serve, value):
    with serve() as server, feed(server) as it:
        made = message(Request(1, [1], 5))
        if isinstance(value, str):
            made.parameters[FEED_PARAMETER].string_param = value
        else:
            made.parameters[FEED_PARAMETER].int64_param = value
        (response,) = server.stub.ModelStreamInfer(iter([made]), timeout=20)
        assert response.error_message.startswith("E2403 MalformedRequest: ")
        it.submit({1: Request(0, [1], 5)})
        it.wait_ends([1])
        assert set(it.tokens) == {1}


REFUSED = {
    "another datatype": RawTensor("input_ids", "FP32", (1, 1), bytes(4)),
    "no such datatype": RawTensor("input_ids", "BF16", (1, 1), bytes(4)),
    "no such input": RawTensor("input_idiots", "INT32", (1, 1), bytes(4)),
    "a batch of two": RawTensor("input_ids", "INT32", (2, 1), bytes(8)),
    "no dimensions": RawTensor("input_ids", "INT32", (), bytes(4)),
    "255 dimensions": RawTensor("input_ids", "INT32", (1,) * 255, bytes(4)),
    "a negative dimension": RawTensor("input_ids", "INT32", (1, -5), bytes(4)),
    "more data than shape": RawTensor("input_ids", "INT32", (1, 1), bytes(400)),
    "less data than shape": RawTensor("input_ids", "INT32", (1, 1 << 62), bytes(4)),
    "no data": RawTensor("input_ids", "INT32", (1, 1), b""),
    "no name": RawTensor("", "INT32", (1, 1), bytes(4)),
}


def test_what_is_refused_ends_over_the_feed_and_ends_nothing_else(serve):
    with serve(500) as server, feed(server) as it:
        it.submit({1000: Request(0, [1], 300)})
        for number, tensor in enumerate(REFUSED.values()):
            it.submit({number: Request(0, [1], 5)}, tensor)
        numbers = range(len(REFUSED))
        it.wait_ends([*numbers, 1000])
        assert_whole(it, 1000, 300)
        for number, what in enumerate(REFUSED):
            (end,) = it.ends[number]
            assert isinstance(end.error, TritonUnknownError), (what, end)
        # In Triton's own words, as its other clients get them.
        assert "data-type is 'FP32', but model 'tensorrt_llm' expects 'INT32'" in str(it.ends[0][0].error)


def test_an_input_that_comes_twice_is_refused(serve):
    with serve() as server, feed(server) as it:
        twice = request_tensors(Request(0, [1], 5))
        it.socket.sendall(encode_request(1, [*twice, twice[0]]))
        it.wait_ends([1])
        assert isinstance(it.ends[1][0].error, TritonUnknownError)


def test_a_prompt_of_a_million_tokens_passes_and_holds_nobody_up(tmp_path):
    engine = write_mock(tmp_path / "engine", tokens_per_second=200, max_seq_len=2_000_000)
    with triton(tmp_path, engine) as server, feed(server) as it, feed(server) as other:
        other.submit({1: Request(0, [1], FOR_EVER)})
        frame = it.frame(1, Request(0, [1] * 1_000_000, 20))
        for start in range(0, len(frame), 1 << 19):
            it.socket.sendall(frame[start : start + (1 << 19)])
            before = len(other.tokens[1])
            while len(other.tokens[1]) < before + 2:
                other.next_step()
        it.wait_ends([1])
        assert_whole(it, 1, 20)


def test_what_an_engine_does_not_take_waits_with_the_client(tmp_path):
    engine = write_mock(tmp_path / "engine", max_seq_len=2_000_000)
    with triton(tmp_path, engine) as server, feed(server) as it:
        before = memory_of(server.process.pid)
        frames = [it.frame(number, Request(0, [1] * 1_000_000, 5)) for number in range(1, 31)]
        waiting = memoryview(b"".join(frames))
        os.kill(server.engine_pid(), signal.SIGSTOP)
        it.socket.settimeout(1)
        with suppress(TimeoutError):
            while waiting:
                waiting = waiting[it.socket.send(waiting[: 1 << 20]) :]
        assert len(waiting) > 32 << 20
        assert memory_of(server.process.pid) - before < 256 << 20
        os.kill(server.engine_pid(), signal.SIGCONT)
        it.socket.settimeout(100)  # it reads 30 million numbers
        it.socket.sendall(waiting)
        it.wait_ends(range(1, 31))
        for number in range(1, 31):
            assert_whole(it, number, 5)


def test_tritons_statistics_count_the_requests_of_feeds(serve):
    with serve() as server, feed(server) as it:
        it.submit({number: Request(0, [1], 5) for number in range(1, 11)})
        it.submit({11: Request(0, [], 5)})  # refused by the engine
        it.wait_ends(range(1, 12))

        def counts() -> tuple[int, int, int]:
            asked = service_pb2.ModelStatisticsRequest(name=MODEL_NAME)
            (model,) = server.stub.ModelStatistics(asked).model_stats
            inferences = model.inference_stats
            return model.inference_count, inferences.success.count, inferences.fail.count

        server.wait_for(lambda: counts() == (10, 10, 1))


def test_errors_come_over_the_feed_after_the_tokens_before_them(serve):
    with serve(1000) as server, feed(server) as it:
        it.submit({1: Request(0, [FAIL], 100), 2: Request(0, [], 5)})
        it.wait_ends([1, 2])
        assert it.tokens[1] == mock_tokens(50)
        assert str(it.ends[1][0].error).startswith("E2405 EngineInternalError: ")
        assert str(it.ends[2][0].error).startswith("E2403 MalformedRequest: ")


@pytest.mark.parametrize("how", ["killed", "crashes"])
def test_when_the_engine_dies_each_request_ends_once_and_later_ones_work(serve, how):
    with serve(100) as server, feed(server) as it:
        numbers = range(1, 129)
        it.submit({number: Request(0, [1], FOR_EVER) for number in numbers})
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
        it.wait_status(lambda status: status.state is EngineState.READY and status.restarts == 1)
        assert EngineState.RESTARTING in {status.state for status in it.statuses}
        it.submit({1000: Request(0, [1], 5)})
        it.wait_ends([1000])
        assert_whole(it, 1000, 5)


def test_sigterm_of_triton_under_load_lets_requests_end_and_kill_ends_the_feed(serve):
    with serve(100) as server, feed(server) as it:
        requests = {number: Request(0, [1], 100) for number in range(1, 65)}
        it.submit({**requests, 99: Request(0, [1], FOR_EVER)})
        while len(it.tokens) < 65:
            it.next_step()
        server.process.terminate()
        late = range(100, 164)
        it.submit({number: Request(0, [1], 10) for number in late})
        it.wait_ends([*requests, *late])
        for number in late:
            (end,) = it.ends[number]
            assert end.finish_reason is FinishReason.LENGTH or isinstance(end.error, TritonUnknownError)
        for number in requests:
            assert_whole(it, number, 100)
        server.process.kill()
        with pytest.raises(EOFError):
            it.wait_ends([99])
        assert it.tokens[99] == mock_tokens(len(it.tokens[99]))


def request_of(*parts: bytes, tensors: int = 1) -> bytes:
    """A REQUEST frame with these bytes after the count of its tensors."""
    return framed(FeedFrame.REQUEST, struct.pack("<QH", 2, tensors) + b"".join(parts))


NAME = b"\x09input_ids"
GARBAGE = {
    "too short a length": struct.pack("<IB", 0, FeedFrame.REQUEST),
    "too large a length": struct.pack("<IB", LARGEST_REQUEST + 1, FeedFrame.REQUEST),
    "no such frame": b"\xff" * 13,
    "a frame of the bridge's": framed(FeedFrame.STEP, bytes(4)),
    "a frame and then text": encode_cancel(7) + b"GET / HTTP/1.1\r\n",
    "a cancel that is too long": framed(FeedFrame.CANCEL, bytes(9)),
    "a request without an id": framed(FeedFrame.REQUEST, bytes(7)),
    "a request without tensors": framed(FeedFrame.REQUEST, bytes(9)),
    "fewer tensors than it says": request_of(tensors=1),
    "more than its tensors": request_of(b"\0", tensors=0),
    "half a name": request_of(NAME[:5]),
    "a name with a zero": request_of(NAME.replace(b"_", b"\0") + struct.pack("<BBqI", 8, 1, 1, 0)),
    "half a shape": request_of(NAME + struct.pack("<BBq", 8, 2, 1)),
    "more data than there is": request_of(NAME + struct.pack("<BBqI", 8, 1, 1, 2**32 - 1) + bytes(4)),
    "noise": random.Random(1).randbytes(100_000),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_client_that_sends_no_frames_loses_its_feed_alone(serve, garbage):
    with serve(500) as server, feed(server) as other:
        hostile = Feed(server.feed_path)
        hostile.submit({1: Request(0, [1], FOR_EVER)})
        other.submit({1: Request(0, [1], 200)})
        hostile.next_step()
        with suppress(ConnectionError):
            hostile.socket.sendall(garbage)
        hostile.read_to_the_end()
        hostile.close()
        other.wait_ends([1])
        assert_whole(other, 1, 200)
        assert "its client sent a frame that cannot be read; requests cancelled: 1" in server.log.read_text()


def test_there_is_room_for_so_many_feeds_and_room_again_when_they_close(serve):
    with serve() as server:
        feeds = [Feed(server.feed_path) for _ in range(16)]
        with pytest.raises((StopIteration, ConnectionError)):
            Feed(server.feed_path)
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
        it.submit({number: Request(0, [1], FOR_EVER) for number in range(1, 9)})
        # The requests end before the bridge says why.
        server.wait_for(
            lambda: "its client is too far behind; requests cancelled: 8" in server.log.read_text()
        )
        assert memory_of(server.process.pid) - before < 64 << 20
        it.read_to_the_end()
        waited = sum(map(len, it.tokens.values())) * 4
        assert waited < 16 << 20
        other.submit({1: Request(0, [1], 100)})
        other.wait_ends([1])
        assert_whole(other, 1, 100)


def test_as_many_steps_as_in_an_hour_leave_the_memory_as_it_was(tmp_path):
    engine = write_mock(tmp_path / "engine", step_seconds=1e-6, max_seq_len=STEPS_OF_AN_HOUR + 1)
    with triton(tmp_path, engine) as server, feed(server) as it:
        it.submit({1: Request(0, [1], STEPS_OF_AN_HOUR)})
        memory = []
        for at_least in (STEPS_OF_AN_HOUR // 10, STEPS_OF_AN_HOUR):
            while len(it.tokens[1]) < at_least:
                it.next_step()
            memory.append([memory_of(pid) for pid in (server.process.pid, server.engine_pid())])
        it.wait_ends([1])
        assert_whole(it, 1, STEPS_OF_AN_HOUR)
        for before, after in zip(*memory, strict=True):
            assert after - before < 4 << 20
