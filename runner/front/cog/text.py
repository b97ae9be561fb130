"""A text as the work of a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from runner.prediction.generation import Piece, TextGeneration


class TextWork:
    """What `Prediction` follows."""

    def __init__(self, generation: TextGeneration) -> None:
        self._generation = generation
        self.facts = generation.facts
        self.results = generation.results
        self.cancel = generation.cancel
        self.close = generation.close

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self._generation

    def told(self) -> dict[str, object]:
        """Nothing but the text."""
        return {}

    @property
    def finish_reason(self) -> str | None:
        """`cancelled`, or another one."""
        return self._generation.finish_reason
