"""What a client's REQUEST frame on a feed holds."""

from __future__ import annotations

from runner.protocol.frames import FrameType, Interface, RequestFrame, decode

_ID = 8  # bytes


def decode_request(body: bytes) -> tuple[int, dict[str, bytes]]:
    """The client's id, and the data of each tensor. Raises ValueError."""
    # The engine's REQUEST has the interface and an id of Triton's in between.
    frame = decode(FrameType.REQUEST, body[:_ID] + bytes([Interface.TOKENS, 0, 0]) + body[_ID:])
    assert isinstance(frame, RequestFrame)
    return frame.request_id, {tensor.name: tensor.data for tensor in frame.tensors}
