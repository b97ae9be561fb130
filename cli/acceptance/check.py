"""What a check is, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.errors import CogTritonError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .bench import Bench


class Outcome(NamedTuple):
    """What was expected and what was found: the same words when all is well."""

    expected: str
    found: str


class Skip(Exception):
    """A check that cannot run here; its text says why."""


class Unable(Exception):
    """Something that a check needs does not work; its text says what was found instead."""


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Check:
    """One of our assumptions about an engine, and how it is checked."""

    name: str
    assumes: str
    source: str
    """Where the assumption comes from: a file in the sources of the engine, or of another project."""
    look: Callable[[Any], Outcome]
    """Takes the bench of its engine."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a check."""

    check: Check
    status: Status
    expected: str
    found: str
    seconds: float


def made(check: Check, bench: Bench) -> tuple[Status, str, str]:
    """Run a check: how it ended, what was expected, what was found."""
    try:
        expected, found = check.look(bench)
    except Skip as reason:
        return Status.SKIPPED, check.assumes, str(reason)
    except (Unable, CogTritonError) as reason:
        return Status.FAILED, check.assumes, str(reason)
    except Exception as error:
        return Status.FAILED, check.assumes, f"{type(error).__name__}: {error}"
    return Status.PASSED if expected == found else Status.FAILED, expected, found
