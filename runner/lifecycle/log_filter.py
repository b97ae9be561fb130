"""What Triton, the bridge and the engine write, on its way to this process's own stderr."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from runner.triton.server import is_harmless
from shared.errors import from_text
from shared.log_lines import LineCutter

if TYPE_CHECKING:
    from typing import IO

    from shared.errors import CogTritonError

_READ_BYTES = 1 << 16


class LogForwarder:
    """Copies lines to stderr, and remembers the last coded error in them."""

    def __init__(self) -> None:
        self.last_error: CogTritonError | None = None

    async def forward(self, pipe: IO[bytes]) -> None:
        """Read to the end."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        cutter = LineCutter()
        try:
            while data := await reader.read(_READ_BYTES):
                for line in cutter.feed(data):
                    self._take(line)
        finally:
            for line in cutter.end():
                self._take(line)
            transport.close()

    def _take(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        if is_harmless(text):
            return
        self.last_error = from_text(text.rstrip('"\n')) or self.last_error
        with suppress(OSError):  # its reader is gone
            os.write(2, line)
