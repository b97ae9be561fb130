"""Predictors written as one would like to write them for Cog, without runner/cog."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar

from cog import AsyncConcatenateIterator, BaseRunner, ConcatenateIterator, Input, streaming

if TYPE_CHECKING:
    from collections.abc import Iterator

PAUSE_SECONDS = 0.1


class Plain(BaseRunner):
    """Streams numbers from a generator, which also tells a metric."""

    streams: ClassVar[bool] = True

    @streaming
    async def run(self, count: int = Input(default=5, description="How many.")) -> ConcatenateIterator[str]:
        """Stream numbers."""
        return self.numbers(count)

    def numbers(self, count: int) -> Iterator[str]:
        for number in range(count):
            time.sleep(PAUSE_SECONDS)
            yield f"{number} "
        self.record_metric("told", count)


class Asynchronous(BaseRunner):
    """The same as an asynchronous generator."""

    streams: ClassVar[bool] = True

    @streaming
    async def run(
        self, count: int = Input(default=5, description="How many.")
    ) -> AsyncConcatenateIterator[str]:
        """Stream numbers."""
        for number in range(count):
            await asyncio.sleep(PAUSE_SECONDS)
            yield f"{number} "
