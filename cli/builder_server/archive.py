"""The engine.tar of the last successful build, for those who ask for it."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from starlette.responses import FileResponse

from shared.errors import OutputNotFound

if TYPE_CHECKING:
    from pathlib import Path

    from runner.front.http import Request


class Archive:
    """A file that the next build replaces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._prediction_id = ""
        self._sha256 = ""
        self._state: os.stat_result | None = None

    def built(self, prediction_id: str, sha256: str) -> None:
        """Note that this prediction has made it; another may replace it."""
        self._prediction_id, self._sha256, self._state = prediction_id, sha256, self.path.stat()

    async def send(self, request: Request) -> None:
        """Answer with it, or with the ranges that were asked for. Raises OutputNotFound before it is
        there, and once it has been replaced.
        """
        if request.variables["id"] != self._prediction_id:
            raise OutputNotFound
        try:
            file = await asyncio.to_thread(self.path.open, "rb")
        except OSError:
            raise OutputNotFound from None
        with file:
            state = os.fstat(file.fileno())
            if self._state is None or not _is_same(state, self._state):
                raise OutputNotFound
            # By the open file: its name may soon be that of the next one.
            answer = _Answer(
                f"/proc/self/fd/{file.fileno()}",
                headers={"etag": f'"{self._sha256}"'},
                media_type="application/x-tar",
                filename=self.path.name,
                stat_result=state,
            )
            await request.hand_to(answer)


class _Answer(FileResponse):
    chunk_size = 1 << 20


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino, one.st_mtime_ns) == (other.st_dev, other.st_ino, other.st_mtime_ns)
