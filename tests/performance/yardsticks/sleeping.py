"""The least that Cog can do: a predictor that sleeps and yields. Cog's server starts it as `sleeping.py:Sleeping`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from cog import BaseRunner, ConcatenateIterator, Input, streaming

if TYPE_CHECKING:
    from collections.abc import Iterator


class Sleeping(BaseRunner):
    """Yields the mock's text."""

    streams: ClassVar[bool] = True

    @streaming
    async def run(
        self,
        max_tokens: int = Input(default=16, description="How many."),
        rate: float = Input(default=100.0, description="A second."),
    ) -> ConcatenateIterator[str]:
        """Stream numbers."""
        return _numbers(max_tokens, rate)


def _numbers(count: int, rate: float) -> Iterator[str]:
    step = time.monotonic()
    for number in range(count):
        step += 1 / rate
        time.sleep(max(step - time.monotonic(), 0))
        yield f" {number}" if number else "0"
