"""One figure of `make bench`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure and what it has to be; without a bound it is only shown."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def is_met(self) -> bool:
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return above and below

    def shown(self) -> str:
        return f"{self.value:.4g} {self.unit}".strip()

    def bound_shown(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""
