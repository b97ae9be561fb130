"""The table of docs/cog-api.md that says where our server differs from Cog's."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.support.conformance.transcript import Transcript

PAGE = Path(__file__).parents[3] / "docs/cog-api.md"
HEADING = "## Where it differs from Cog's own server"
NOTHING = "nothing"


@dataclass(frozen=True)
class Difference:
    """One thing that two servers say differently; None: it is not there."""

    name: str
    cogs: object
    ours: object

    def __str__(self) -> str:
        return f"{self.name}: Cog {shown(self.cogs)}, ours {shown(self.ours)}"


@dataclass(frozen=True)
class Row:
    """`requests`: which ones; `what`: names of a transcript; what each server says, with … for any text."""

    requests: tuple[str, ...]
    what: tuple[str, ...]
    cogs: str
    ours: str

    def allows(self, groups: tuple[str, ...], difference: Difference) -> bool:
        return (
            not set(self.requests).isdisjoint(groups)
            and any(fnmatchcase(difference.name, pattern) for pattern in self.what)
            and _says(self.cogs, difference.cogs)
            and _says(self.ours, difference.ours)
        )


def rows() -> list[Row]:
    """Those of the page."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    found = []
    for line in lines[2:]:
        requests, what, cogs, ours = (cell.strip() for cell in line.strip("|").split(" | "))
        found.append(Row(tuple(requests.split("; ")), tuple(_spans(what)), cogs, ours))
    return found


def differences(cogs: Transcript, ours: Transcript) -> list[Difference]:
    """Everything that is not the same in both.

    When already the statuses differ, what comes with them is one difference, called `answer`.
    """
    if cogs.get("status") != ours.get("status"):
        return [Difference("answer", _summary(cogs), _summary(ours))]
    names = dict.fromkeys([*cogs, *ours])
    return [
        Difference(name, cogs.get(name), ours.get(name))
        for name in names
        if cogs.get(name, NOTHING) != ours.get(name, NOTHING)
    ]


def _summary(transcript: Transcript) -> str:
    """An answer in short: its status, and what its body is about."""
    about = ("body.error", "body", "body.detail", "body.status", "completed.status", "events")
    said = [shown(transcript[name]) for name in about if name in transcript]
    return " ".join([str(transcript["status"]), *said[:1]])


def shown(value: object) -> str:
    """A value as the table has it."""
    if value is None:
        return NOTHING
    return value if isinstance(value, str) else json.dumps(value)


def _spans(cell: str) -> list[str]:
    return re.findall("`([^`]*)`", cell)


def _says(cell: str, value: object) -> bool:
    """Whether a cell of the table says this; one without code says that there is something."""
    if value in (None, "") or cell == NOTHING:
        return value in (None, "") and cell == NOTHING
    spans = _spans(cell)
    patterns = [".*".join(map(re.escape, span.split("…"))) for span in spans]
    return not spans or any(re.fullmatch(pattern, shown(value), re.DOTALL) for pattern in patterns)
