"""Frames, which all sockets between processes of a runner carry.

`u32 length` of what follows, `u8 type`, body; little-endian. Standard library only: engine processes import
it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = struct.Struct("<IB")
_LARGEST = (1 << 32) - 1


def framed(kind: int, body: bytes) -> bytes:
    """The bytes of one frame."""
    return _HEAD.pack(1 + len(body), kind) + body


class FrameReader:
    """Cuts what arrives over one socket into frames."""

    def __init__(self, largest: int = _LARGEST) -> None:
        """`largest`: bytes that a frame may have after its length."""
        self._largest = largest
        self._rest = bytearray()
        self._wanted = _HEAD.size

    def frames(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Type and body of each frame that `data` completes; iterate it to its end.

        Raises ValueError for a length that no frame can have.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._wanted:
                return
            data, self._rest = bytes(self._rest), bytearray()
        at, self._wanted = 0, _HEAD.size
        while len(data) - at >= _HEAD.size:
            length, kind = _HEAD.unpack_from(data, at)
            if not 1 <= length <= self._largest:
                raise ValueError(f"a frame cannot have {length} bytes")
            end = at + _HEAD.size - 1 + length
            if end > len(data):
                self._wanted = end - at
                break
            yield kind, data[at + _HEAD.size : end]
            at = end
        self._rest += data[at:]
