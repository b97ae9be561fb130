"""The place for a runner's sockets and small files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.lifecycle.run_directory import run_directory

from .check import Check, Finding, ok

if TYPE_CHECKING:
    from collections.abc import Iterator


def _look() -> Iterator[Finding]:
    with run_directory() as directory:  # its error says what is wrong, and what to do
        place = directory.parent
    yield ok(f"{place} will do")


CHECK = Check("sockets", "A place for the runner's sockets and small files", _look)
