"""What a check is, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Severity(StrEnum):
    """What a finding means for the person who reads it."""

    OK = "ok"
    WARNING = "warning"
    """Something that not everybody needs does not work here."""
    ERROR = "error"
    """cog-triton does not work here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    severity: Severity
    message: str
    remedy: str = ""  # empty when all is well


def ok(message: str) -> Finding:
    """What is as it should be."""
    return Finding(Severity.OK, message)


def warning(message: str, remedy: str) -> Finding:
    """What some people need is missing."""
    return Finding(Severity.WARNING, message, remedy)


def error(message: str, remedy: str) -> Finding:
    """What everybody needs is missing."""
    return Finding(Severity.ERROR, message, remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """Looks at one aspect of the machine, for seconds at most; leaves nothing where it tries to write."""

    name: str
    description: str
    look: Callable[[], Iterable[Finding]]
    of_hosts: bool = False
    """Whether only hosts need it: it is left out in an image of ours."""

    def findings(self) -> list[Finding]:
        """At least one; a check that fails is a finding too."""
        try:
            return list(self.look())
        except CogTritonError as coded:
            return [error(coded.message.format(**coded.details), coded.remedy.format(**coded.details))]
        except Exception as failed:
            reason = f"this could not be checked: {type(failed).__name__}: {failed}"
            return [warning(reason, "Please report it: it is a bug in cog-triton.")]
