"""What was done, for people and for programs."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any


class Outcome(enum.StrEnum):
    """What became of a library. One that is refused is unchanged."""

    PRUNED = "pruned"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass
class LibraryReport:
    """One library; sizes in bytes. `device_*` are bytes of device code by target: sm_86, compute_80."""

    path: str
    size_before: int
    size_after: int
    outcome: Outcome = Outcome.UNCHANGED
    reason: str = ""
    containers: int = 0
    left_whole: int = 0
    device_before: dict[str, int] = field(default_factory=dict)
    device_after: dict[str, int] = field(default_factory=dict)
    debug_removed: int = 0
    cut: int = 0

    @property
    def has_device_code(self) -> bool:
        return bool(self.device_before)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class TreeReport:
    """All libraries below a folder that have device code or were changed; paths relative to it."""

    sm: int | None
    libraries: list[LibraryReport] = field(default_factory=list)
    removed: dict[str, int] = field(default_factory=dict)
    linked: dict[str, int] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
