"""The base of every error this project raises on purpose.

A code is `E[category][subcategory][sequence]` and keeps its meaning for ever. Standard library only: the
engine processes import this too, and their environments are not ours.
"""

from __future__ import annotations

import re
from enum import StrEnum
from string import Formatter
from typing import ClassVar


class State(StrEnum):
    """Whether a code can be met today."""

    ACTIVE = "active"  # raised somewhere, and by a test
    RESERVED = "reserved"  # had a meaning once; never given another


class FixedBy(StrEnum):
    """Who can do something about it."""

    USER = "user"  # the sender of the prediction
    OPERATOR = "operator"  # the person who runs the image or writes the config
    ENGINE = "engine"  # the engine; trying again may help
    US = "us"  # a bug in cog-triton


REGISTRY: dict[str, type[CogTritonError]] = {}

UNEXPECTED = "an unexpected error occurred"
"""The reason where nobody foresaw what happened: what it was is in the log."""

_CODED_TEXT = re.compile(r"\b(E[1-4]\d{3}) ([A-Z][A-Za-z0-9]+): ", re.ASCII)


class CogTritonError(Exception):
    """An error with a code, a message that says what is wrong, and a remedy that says what to do.

    Subclasses fill the class variables. `message` and `remedy` are `str.format` templates; their fields are
    the keyword arguments of the constructor and stay readable as `details`.
    """

    code: ClassVar[str]
    state: ClassVar[State] = State.ACTIVE
    at_start: ClassVar[bool] = False
    """Of E2xxx: it ends an engine, mostly one that loads; a request meets E2400, which can name it."""
    fixed_by: ClassVar[FixedBy]
    message: ClassVar[str]
    remedy: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Enter the class under its code; two classes with one code are a programming error."""
        super().__init_subclass__()
        other = REGISTRY.setdefault(cls.code, cls)
        if other is not cls:
            raise TypeError(f"{cls.code} is both {other.__name__} and {cls.__name__}")

    def __init__(self, **details: object) -> None:
        self.details = details
        # Details may be foreign texts of many lines, and paths that are not text.
        sentences = " ".join(f"{self.message} {self.remedy}".format(**details).splitlines())
        sentences = sentences.encode(errors="backslashreplace").decode()
        self.text = f"{self.code} {self.name()}: {sentences}"
        super().__init__(self.text)

    @classmethod
    def name(cls) -> str:
        """The short name that follows the code."""
        return cls.__name__

    def __str__(self) -> str:
        """`E1001 PromptRequired: what is wrong. What to do.`, in one line."""
        return self.text

    def for_log(self) -> str:
        """What may be logged: a user's error may quote what was sent."""
        return self.code if self.fixed_by is FixedBy.USER else self.text

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by text: details may hold anything."""
        return (from_text, (self.text,))


def from_text(text: str) -> CogTritonError | None:
    """The coded error inside `text`, as another process of ours wrote it, or None if there is none.

    Its details are texts; there are none where they cannot be told apart.
    """
    found = _CODED_TEXT.search(text)
    if found is None or (kind := REGISTRY.get(found[1])) is None or kind.name() != found[2]:
        return None
    error = kind.__new__(kind)
    error.text = text[found.start() :].strip()
    error.details = _details(kind, error.text[len(found[0]) :])
    Exception.__init__(error, error.text)
    return error


def _details(kind: type[CogTritonError], sentences: str) -> dict[str, object]:
    """What the fields of the templates of `kind` were filled with."""
    details: dict[str, object] = {}
    field, at = None, 0
    for literal, following, _, _ in Formatter().parse(f"{kind.message} {kind.remedy}"):
        start = sentences.find(literal, at)
        filled = sentences[at:start]
        if start < 0 or (filled if field is None else details.setdefault(field, filled) != filled):
            return {}
        field, at = following, start + len(literal)
    return details if at == len(sentences) else {}
