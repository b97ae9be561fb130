"""What Triton, the bridge and the engine write, on its way to this process's own stderr."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from runner.triton.server import is_harmless
from shared.errors import from_text

if TYPE_CHECKING:
    from typing import IO

    from shared.errors import CogTritonError

_MAX_LINE_BYTES = 1 << 20


class LogForwarder:
    """Copies lines to stderr, and remembers the last coded error in them."""

    def __init__(self) -> None:
        self.last_error: CogTritonError | None = None

    async def forward(self, pipe: IO[bytes]) -> None:
        """Read to the end."""
        reader = asyncio.StreamReader(limit=_MAX_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while line := await _line(reader):
                self._take(line)
        finally:
            transport.close()

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if is_harmless(text):
            return
        self.last_error = from_text(text.rstrip('"\n')) or self.last_error
        with suppress(OSError):  # its reader is gone
            os.write(2, line)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next line; part of one that is too long; nothing at the end."""
    try:
        return await reader.readuntil()
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as long:
        return await reader.readexactly(long.consumed)
