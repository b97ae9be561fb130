"""The frames of a feed, from the side that reads them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.protocol.engine import Declaration, Limits, Output, Statistics
from runner.protocol.feed import (
    EngineState,
    EngineStatus,
    FeedFrame,
    FeedReader,
    FeedStatistics,
    Opened,
    encode_cancel,
    encode_request,
)
from runner.protocol.outputs import encode_outputs
from runner.protocol.tensors import RawTensor
from tests.support.feed_request import decode_request

DECLARATION = Declaration("mock", Limits(100, 99, 500), frozenset({"seed", "top_k"}), seeds=True)


def framed(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


STREAM = b"".join(
    [
        framed(FeedFrame.OPENED, struct.pack("<I", 4)),
        framed(FeedFrame.ENGINE, struct.pack("<BI", 0, 0)),
        framed(FeedFrame.ENGINE, struct.pack("<BI", 1, 2) + DECLARATION.to_json().encode()),
        framed(FeedFrame.STEP, encode_outputs([Output(1, (5,)), Output(2, (6, 7))])),
        framed(FeedFrame.STATISTICS, struct.pack("<5I", 9, 1, 2, 3, 4)),
    ]
)
MESSAGES = [
    Opened(),
    EngineStatus(EngineState.STARTING, 0, None),
    EngineStatus(EngineState.READY, 2, DECLARATION),
    [Output(1, (5,)), Output(2, (6, 7))],
    FeedStatistics(9, Statistics(1, 2, 3, 4)),
]


@given(st.integers(1, len(STREAM)))
def test_messages_are_the_same_however_the_bytes_are_cut(piece):
    reader = FeedReader()
    pieces = [STREAM[start : start + piece] for start in range(0, len(STREAM), piece)]
    assert [message for data in pieces for message in reader.messages(data)] == MESSAGES


@pytest.mark.parametrize(
    "data",
    [
        framed(77, b""),
        framed(FeedFrame.OPENED, struct.pack("<I", 3)),
        framed(FeedFrame.OPENED, b""),
        framed(FeedFrame.ENGINE, struct.pack("<BI", 9, 0)),
        framed(FeedFrame.ENGINE, struct.pack("<BI", 1, 0) + b"{"),
        framed(FeedFrame.ENGINE, struct.pack("<BI", 1, 0) + b"[]"),
        framed(FeedFrame.STEP, b"\1\0\0\0"),
        struct.pack("<IB", 0, 130),
        struct.pack("<IB", 2**32 - 1, 130),
    ],
)
def test_bytes_that_are_no_feeds_are_refused(data):
    with pytest.raises(ValueError, match=r"."):
        list(FeedReader().messages(data))


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_messages_or_a_value_error(pieces):
    reader = FeedReader()
    try:
        for data in pieces:
            list(reader.messages(data))
    except ValueError:
        pass


def test_a_cancel_has_the_documented_layout():
    assert encode_cancel(7) == struct.pack("<IBQ", 9, 2, 7)


def test_a_request_has_the_documented_layout():
    tensors = [RawTensor("input_ids", "INT32", (1, 2), b"12345678"), RawTensor("ä", "BOOL", (), b"\1")]
    body = struct.pack("<QH", 7, 2)
    body += b"\x09input_ids" + struct.pack("<BB2qI", 8, 2, 1, 2, 8) + b"12345678"
    body += b"\x02\xc3\xa4" + struct.pack("<BBI", 1, 0, 1) + b"\1"
    assert encode_request(7, tensors) == framed(1, body)


@given(
    st.integers(0, 2**64 - 1),
    st.dictionaries(
        st.text(max_size=40),
        st.tuples(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9), st.binary(max_size=60)),
        max_size=9,
    ),
)
def test_a_request_is_read_as_it_was_written(number, given):
    tensors = [RawTensor(name, "BYTES", tuple(shape), data) for name, (shape, data) in given.items()]
    frame = encode_request(number, tensors)
    assert decode_request(frame[5:]) == (number, {tensor.name: tensor.data for tensor in tensors})
