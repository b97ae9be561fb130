"""What `make bench` finds: figures, and charts of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """A figure and its bound; without a bound it is only shown.

    One that cannot be measured here has no value, but the `command` that measures it elsewhere.
    """

    name: str
    value: float | None
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    command: str = ""

    def is_met(self) -> bool:
        if self.value is None:
            return bool(self.command)
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return above and below

    def shown(self) -> str:
        if self.value is None:
            return f"not here: {self.command}" if self.command else "not measured"
        return f"{self.value:.4g} {self.unit}".strip()

    def bound_shown(self) -> str:
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""


@dataclass(frozen=True)
class Chart:
    """A figure of the page, docs/figures/NAME.svg: lines, or else bars."""

    name: str
    title: str
    x_label: str
    y_label: str = ""
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    logarithmic: bool = False
    """Of a chart of lines: the x axis."""
