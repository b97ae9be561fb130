"""A file that arrives over several connections at once, in order and with bounded memory."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, pairwise
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from .remote import Remote

FIRST = 1 << 20
"""Bytes of the part that is fetched alone: enough for a manifest, because of which an engine may be refused.
"""
PART = 6 << 20
CONNECTIONS = 16  # object stores give each of them some 50 to 100 MB/s
WINDOW = CONNECTIONS + 4
"""Parts that may have arrived before their turn: at most 120 MiB, and a connection rarely has to wait."""


class _Part:
    """Some bytes of the file, from `start` on; iterating waits for them."""

    def __init__(self, buffer: bytearray, start: int, stop: int) -> None:
        self.buffer = buffer
        self._start = start
        self._view = memoryview(buffer)[: stop - start]
        self._arrived: SimpleQueue[int | BaseException] = SimpleQueue()

    def fetch(self, remote: Remote) -> None:
        try:
            remote.fill(self._view, self._start, self._arrived.put)
        except BaseException as error:
            self._arrived.put(error)

    def __iter__(self) -> Iterator[memoryview]:
        at = 0
        while at < len(self._view):
            count = self._arrived.get()
            if isinstance(count, BaseException):
                raise count
            yield self._view[at : at + count]
            at += count


def in_order(remote: Remote, size: int) -> Generator[memoryview]:
    """The `size` bytes of the file, in pieces that are valid until the next one is asked for; closes `remote`
    after them. Raises what `remote.fill` raises.
    """
    # A server may say any size.
    ends = pairwise(chain((0,), range(FIRST, size, PART), (size,)))
    window: deque[_Part] = deque()
    wanted = 1
    buffers: list[bytearray] = []
    connections = ThreadPoolExecutor(CONNECTIONS, "weights")
    try:
        while True:
            for start, stop in islice(ends, wanted - len(window)):
                part = _Part(buffers.pop() if buffers else bytearray(PART), start, stop)
                connections.submit(part.fetch, remote)
                window.append(part)
            if not window:
                return
            part = window.popleft()
            yield from part
            buffers.append(part.buffer)
            wanted = WINDOW
    finally:
        remote.close()
        connections.shutdown(cancel_futures=True)
