"""What a check finds: coded errors, each with its place in the config, and whether a build may go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.config.document import Place
    from shared.errors import CogTritonError


class Severity(StrEnum):
    """Whether a build may continue."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or that the author may not expect."""

    severity: Severity
    place: Place
    error: CogTritonError


@dataclass(slots=True)
class Findings:
    """A list that the parts of a check add to."""

    found: list[Finding] = field(default_factory=list)

    def error(self, place: Place, error: CogTritonError) -> None:
        """Add a fault that makes a build impossible."""
        self.found.append(Finding(Severity.ERROR, place, error))

    def warn(self, place: Place, error: CogTritonError) -> None:
        """Add a fault that a build can continue with."""
        self.found.append(Finding(Severity.WARNING, place, error))

    @property
    def errors(self) -> list[Finding]:
        """The findings that make a build impossible."""
        return [one for one in self.found if one.severity is Severity.ERROR]

    def keep_one_remedy(self) -> None:
        """Leave out the warnings about a value that has an error: what they tell to write would be another
        remedy, and may be refused itself.
        """
        wrong = {one.place for one in self.errors if len(one.place) > 1}  # a section has many values
        self.found = [one for one in self.found if one.severity is Severity.ERROR or one.place not in wrong]
