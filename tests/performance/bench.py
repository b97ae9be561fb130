"""Every figure of speed, as a ratio within one run where that can be: `make bench`.

A ratio compares what was measured with something else of the same run, so that it means the same on every
machine. Writes the rows of serving to docs/performance.md; exits with status 1 when a row misses its bound.
With `--serving` only those are measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from shared.layout import PROJECT_ROOT
from tests.performance import (
    cancel_rows,
    direct_rows,
    images_rows,
    memory_rows,
    packing_rows,
    prune_rows,
    serving_rows,
    startup_rows,
    weights_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from tests.performance.row import Row

SERVING = (startup_rows, direct_rows, serving_rows, cancel_rows, memory_rows)
OTHERS = (packing_rows, weights_rows, prune_rows, images_rows)
PAGE = PROJECT_ROOT / "docs/performance.md"
_MARK = "<!-- measured: what follows is written by `make bench` -->\n"


def measure(modules: Sequence[ModuleType], console: Console) -> list[Row]:
    """Their rows, shown as they come."""
    found: list[Row] = []
    for module in modules:
        table = Table("figure", "measured", "bound", "", title=module.__name__.rpartition(".")[2])
        for row in module.rows():
            table.add_row(row.name, row.shown(), row.bound_shown(), "" if row.is_met() else "missed")
            found.append(row)
        console.print(table)
    return found


def machine() -> str:
    """The processor, and how much of it there is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'an unnamed processor'}"


def write_page(rows: Sequence[Row], busy: float) -> None:
    """Put them into the page, below the words that are written by hand."""
    words, mark, _ = PAGE.read_text().partition(_MARK)
    when_and_where = (
        f"Measured on {datetime.now(UTC):%d %B %Y} on {machine()}, with Python {platform.python_version()}; "
        f"{busy:.1f} processes ran or waited for a core when it began (the load average)."
    )
    measured = [
        f"{when_and_where}\n\n",
        "| figure | measured | bound | |\n|---|---|---|---|\n",
        *(
            f"| {row.name} | {row.shown()} | {row.bound_shown()} | {'' if row.is_met() else 'missed'} |\n"
            for row in rows
        ),
    ]
    PAGE.write_text(words + mark + "\n" + "".join(measured))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serving", action="store_true", help="only what is served, not built or packed")
    options = parser.parse_args()
    console = Console()
    busy = os.getloadavg()[0]
    rows = measure(SERVING, console)
    write_page(rows, busy)
    if not options.serving:
        rows += measure(OTHERS, console)
    return int(not all(row.is_met() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
