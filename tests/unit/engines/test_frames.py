"""The wire format between bridge and engine process."""

from __future__ import annotations

import socket
import struct
import threading

from hypothesis import given
from hypothesis import strategies as st

from runner.protocol.engine import Declaration, FinishReason, Limits, Output, Statistics
from runner.protocol.frames import (
    DATATYPES,
    CancelFrame,
    Interface,
    ReadyFrame,
    RequestFrame,
    ShutdownFrame,
    StartFailedFrame,
    StatisticsFrame,
    StepFrame,
    Tensor,
    decode,
    encode,
    receive,
)
from runner.protocol.outputs import TextOutput
from shared.errors import CogTritonError, EngineInternalError

U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
TENSORS = st.builds(
    Tensor,
    name=TEXT,
    datatype=st.sampled_from(DATATYPES),
    shape=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple),
    data=st.binary(max_size=100),
)
OUTPUTS = st.builds(
    Output,
    request_id=U64,
    tokens=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20).map(tuple),
    finish_reason=st.sampled_from(FinishReason),
)
TEXT_OUTPUTS = st.builds(TextOutput, U64, TEXT, st.sampled_from(FinishReason))
DECLARATIONS = st.builds(
    Declaration,
    TEXT,
    st.builds(Limits, U32, U32, st.none() | U32),
    st.frozensets(TEXT, max_size=3),
)
FRAMES = st.one_of(
    st.builds(RequestFrame, U64, TEXT, st.lists(TENSORS, max_size=5).map(tuple), st.sampled_from(Interface)),
    st.builds(CancelFrame, U64),
    st.just(ShutdownFrame()),
    st.builds(ReadyFrame, DECLARATIONS, U32),
    st.builds(StartFailedFrame, TEXT),
    st.builds(StepFrame, st.lists(OUTPUTS | TEXT_OUTPUTS, max_size=5)),
    st.builds(StatisticsFrame, st.builds(Statistics, U32, U32, U32, U32)),
)


def read(data: bytes, piece: int = 1 << 20) -> list:
    """What `receive` makes of these bytes, sent in pieces."""
    ours, theirs = socket.socketpair()

    def write():
        with theirs:
            for start in range(0, len(data), piece):
                theirs.sendall(data[start : start + piece])

    writer = threading.Thread(target=write)
    writer.start()
    with ours:
        frames = list(receive(ours))
    writer.join()
    return frames


@given(st.lists(FRAMES, max_size=4), st.integers(1, 50))
def test_frames_arrive_as_they_were_sent_however_the_bytes_are_cut(frames, piece):
    assert read(b"".join(encode(frame) for frame in frames), piece) == frames


@given(FRAMES, st.data())
def test_a_body_that_is_cut_is_refused_or_another_frame(frame, data):
    whole = encode(frame)
    cut = whole[: data.draw(st.integers(5, len(whole)))]
    try:
        again = decode(cut[4], cut[5:])
    except ValueError:
        return
    assert encode(again)[4:] == cut[4:]


@given(st.integers(0, 255), st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_a_value_error(kind, body):
    try:
        decode(kind, body)
    except ValueError:
        pass


def test_a_side_that_ends_with_frames_unread_has_ended_like_any_other():
    """Linux calls it a reset; what it had sent before arrives."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(encode(ShutdownFrame()))
        theirs.sendall(encode(CancelFrame(7)))
        theirs.close()
        assert list(receive(ours)) == [CancelFrame(7)]


def test_an_error_travels_as_its_text():
    error = EngineInternalError(reason="no luck")
    (frame,) = read(encode(StepFrame((Output(7, error=error),))))
    (output,) = frame.outputs
    assert isinstance(output.error, CogTritonError)
    assert (output.request_id, str(output.error)) == (7, str(error))


def test_a_step_has_the_documented_layout():
    step = StepFrame((Output(5, (10, 11)), Output(6, (), FinishReason.LENGTH)))
    assert encode(step) == (
        struct.pack("<IBI", 1 + 4 + 14 + 8 + 14, 66, 2)
        + struct.pack("<QBBI2i", 5, 0, 0, 2, 10, 11)
        + struct.pack("<QBBI", 6, 3, 0, 0)
    )


def test_a_request_has_the_documented_layout():
    request = RequestFrame(
        9, "ab", (Tensor("end_id", "INT32", (1, 1), struct.pack("<i", 2)),), Interface.TEXT
    )
    body = struct.pack("<QBH2sH", 9, 1, 2, b"ab", 1) + struct.pack(
        "<B6sBBqqIi", 6, b"end_id", 8, 2, 1, 1, 4, 2
    )
    assert encode(request) == struct.pack("<IB", 1 + len(body), 1) + body
