"""gzip whose bytes depend only on the content: not on the machine's zlib, Python, or number of cores.

The compressor is a wheel from the locks (libdeflate). The stream is cut into chunks, each a gzip member of
its own (RFC 1952, 2.2), which lets all cores work and keeps memory small.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import deflate

if TYPE_CHECKING:
    from collections.abc import Callable

_CHUNK = 4 << 20
_LEVEL = 6
_LEVEL_OF_THE_LAST = 12  # takes a second at most, for all of the application, which every commit sends


class GzipWriter:
    """`write` what to compress, then `close`; `output` gets the compressed bytes in order."""

    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self._pool = ThreadPoolExecutor(os.cpu_count())
        self._waiting: deque[Future[bytes]] = deque()
        self._bound = 2 * (os.cpu_count() or 1)
        self._chunk = bytearray()

    def write(self, data: bytes) -> None:
        self._chunk += data
        while len(self._chunk) >= _CHUNK:
            self._submit(bytes(self._chunk[:_CHUNK]))
            del self._chunk[:_CHUNK]

    def close(self) -> None:
        if self._chunk:
            self._submit(bytes(self._chunk), _LEVEL_OF_THE_LAST)
        while self._waiting:
            self._output(self._waiting.popleft().result())
        self._pool.shutdown()

    def _submit(self, chunk: bytes, level: int = _LEVEL) -> None:
        self._waiting.append(self._pool.submit(deflate.gzip_compress, chunk, level))
        while len(self._waiting) > self._bound:
            self._output(self._waiting.popleft().result())
