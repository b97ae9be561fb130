"""Has the engine stop what it does for clients of Triton that have left.

Triton learns nothing of it: the bridge ends their requests (runner/protocol/feed.py), so that Triton's own
calls end as if the engine had ended them.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from runner.protocol.feed import encode_cancel_group

if TYPE_CHECKING:
    from pathlib import Path

_AGAIN_SECONDS = 0.1
_READ_BYTES = 1 << 16


class Leavers:
    """The clients that have left while the engine worked for them. For one event loop."""

    def __init__(self, feed_path: Path) -> None:
        self._feed_path = feed_path
        self._last_group = secrets.randbits(62)  # what others send of their own stands for nobody
        self._groups: set[int] = set()
        self._telling: asyncio.Task[None] | None = None

    def new_group(self) -> int:
        """The number that all requests of one call are sent with."""
        self._last_group += 1
        return self._last_group

    def add(self, group: int) -> None:
        """Its client has left: end its requests, until `discard`."""
        self._groups.add(group)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell())

    def discard(self, group: int) -> None:
        """Its call is over."""
        self._groups.discard(group)

    async def _tell(self) -> None:
        """Again and again: a request may be on its way to the engine."""
        try:
            while self._groups:
                try:
                    reader, writer = await asyncio.open_unix_connection(str(self._feed_path))
                except OSError:  # Triton is being started
                    await asyncio.sleep(_AGAIN_SECONDS)
                    continue
                try:
                    await self._tell_over(reader, writer)
                finally:
                    writer.close()
        finally:
            self._telling = None

    async def _tell_over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Over one connection, while it lasts; what comes over it is for others."""
        while self._groups:
            writer.write(b"".join(map(encode_cancel_group, self._groups)))
            try:
                async with asyncio.timeout(_AGAIN_SECONDS):
                    while await reader.read(_READ_BYTES):
                        pass
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            await asyncio.sleep(_AGAIN_SECONDS)
            return
