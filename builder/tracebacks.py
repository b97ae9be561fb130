"""The lines of Python's tracebacks, among other output of a tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_RANK = re.compile(r"^\[rank\d+\]: ")  # torch writes it before each line
_FRAME = re.compile(r'\s*File "[^"]*", line \d+')
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")


def without_sources(lines: Iterable[str]) -> Iterator[str]:
    """The lines, without the source code that tracebacks quote, which contains error texts as templates.

    An indented line after one about a file is such a quotation, and so is one at the very beginning, where a
    traceback may have been cut.
    """
    quotes = True
    for line in lines:
        text = _RANK.sub("", line)
        if _FRAME.match(text):
            quotes = True
        elif not (quotes and text[:1].isspace()):
            quotes = False
            yield line


def is_exception(line: str) -> bool:
    """Whether it is the last line of a traceback: the type of an exception, and its text."""
    return _EXCEPTION.match(_RANK.sub("", line)) is not None
