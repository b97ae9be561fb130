"""What the bridge makes of the frames of an engine process that is not ours."""

from __future__ import annotations

import shlex
import struct
import sys

import pytest

from runner.protocol.engine import Declaration, FinishReason, Limits, LogProbs, Output, Request, Statistics
from runner.protocol.feed import EngineState
from runner.protocol.frames import FrameType, ReadyFrame, StatisticsFrame, encode, encode_step
from runner.protocol.outputs import TextOutput
from tests.support.feed import feed
from tests.support.triton import triton

FIRST_ID = 1 << 20  # which the bridge gives the first request
LATER_ID = 2 << 20

# Says that it is ready; once it has got something, says what is in its directory.
ENGINE = """\
import socket, sys
directory = sys.argv[sys.argv.index("--engine-dir") + 1]
bridge = socket.socket(fileno=3)
bridge.sendall(open(directory + "/ready", "rb").read())
if bridge.recv(1 << 20):
    bridge.sendall(open(directory + "/frames", "rb").read())
while bridge.recv(1 << 20):
    pass
"""


@pytest.fixture
def serve(tmp_path):
    """`serve(frames)`: a server whose engine process answers the first request with these bytes."""

    def start(frames: bytes):
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(ENGINE)} "$@"\n')
        program.chmod(0o700)
        engine = tmp_path / "engine"
        engine.mkdir()
        declaration = Declaration("abacus", Limits(10, 9), frozenset())
        (engine / "ready").write_bytes(encode(ReadyFrame(declaration)))
        (engine / "frames").write_bytes(frames)
        return triton(tmp_path, engine, engine_python=program, max_restarts=0)

    return start


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def step(count: int, *parts: bytes) -> bytes:
    return framed(FrameType.STEP, struct.pack("<I", count) + b"".join(parts))


def head(finish: int, extras: int, count: int) -> bytes:
    return struct.pack("<QBBI", FIRST_ID, finish, extras, count)


@pytest.mark.parametrize(
    "frames",
    [
        b"\0\0\0\0\0",
        struct.pack("<IB", 1 << 27, FrameType.STEP),
        framed(99, b""),
        framed(FrameType.READY, struct.pack("<I", 3)),
        framed(FrameType.STATISTICS, b"abc"),
        framed(FrameType.STATISTICS, bytes(20)),
        framed(FrameType.STEP, b"\1"),
        step(1000),
        step(1, b"\0" * 5),
        step(1, head(0, 0, 2**32 - 1)),
        step(1, head(255, 0, 2**32 - 1)),
        step(1, head(0, 1, 1), struct.pack("<i", 5)),
        step(1, head(0, 2, 1), struct.pack("<i", 5)),
        step(1, head(0, 2, 1), struct.pack("<iBf", 5, 255, 0.0)),
        step(1, head(0, 2, 2**32 - 1), b"\xff" * 100),
        step(1, head(0, 0, 1), struct.pack("<i", 5), b"more"),
        encode_step([TextOutput(FIRST_ID, "text for a request for tokens")]),
    ],
)
def test_an_engine_that_sends_what_cannot_be_read_is_ended_and_its_requests_fail(serve, frames):
    with serve(frames) as server, feed(server) as it:
        it.submit({1: Request(0, [1], 5)})
        it.wait_ends([1])
        assert str(it.ends[1][0].error).startswith("E2400 EngineProcessDied: ")
        server.wait_engine(EngineState.GIVEN_UP)


def test_why_a_loaded_engine_ends_is_told_to_its_requests(serve):
    with serve(framed(FrameType.START_FAILED, b"E2409 HostLost: of a test")) as server, feed(server) as it:
        it.submit({1: Request(0, [1], 5)})
        it.wait_ends([1])
        assert "in the middle of this request: E2409 HostLost: of a test." in str(it.ends[1][0].error)
        server.wait_engine(EngineState.GIVEN_UP)


def test_what_an_engine_reports_is_told_to_clients_at_once(serve):
    reports = [Statistics(active_requests=count) for count in (5, 6, 7)]
    with serve(b"".join(encode(StatisticsFrame(one)) for one in reports)) as server, feed(server) as it:
        it.submit({1: Request(0, [1], 5)})
        assert it.wait_statistics(7) == [0, 5, 6, 7]


def test_everything_that_an_output_can_hold_arrives(serve):
    outputs = [
        Output(FIRST_ID, (5, 6), cached_tokens=17),
        Output(FIRST_ID, (7,)),
        Output(FIRST_ID, (8,), log_probs=[LogProbs(-0.5, [(9, -1.0), (8, -0.5)])]),
        Output(LATER_ID, (1,)),  # which nobody asked for
        Output(FIRST_ID, (10, 11), log_probs=[LogProbs(-0.25, []), LogProbs(-0.125, [])]),
        Output(FIRST_ID, (12,), FinishReason.END_ID, cached_tokens=0),
    ]
    with serve(encode_step(outputs)) as server, feed(server) as it:
        it.submit({1: Request(0, [1], 5)})
        got = it.next_step()
        assert got == [output._replace(request_id=1) for output in outputs if output.request_id == FIRST_ID]
