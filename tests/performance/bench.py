"""Every figure of speed, as a ratio within one run where that can be: `make bench`.

    python -m tests.performance.bench [GROUP ...]

A ratio compares what was measured with something else of the same run, so that it means the same on every
machine. Writes what it finds to docs/performance.md, of the groups that are named, or of all; exits with status 1
when a row misses its bound.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tests.performance.load import unwind_when_ended
from tests.performance.page import PAGE, draw, section, when_and_where, write_section
from tests.performance.row import Chart, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUPS = (
    "startup",
    "direct",
    "serving",
    "original",
    "scaling",
    "cancel",
    "perf",
    "memory",
    "packing",
    "weights",
    "prune",
    "images",
    "imports",
    "elsewhere",
)
"""Each is a module, NAME_rows.py: its docstring says what it is about, its `rows()` what it finds."""


def measure(group: str, console: Console) -> bool:
    """Find what a group has, show it, and write it to the page. Whether every row meets its bound."""
    load = os.getloadavg()[0]
    module = import_module(f"tests.performance.{group}_rows")
    try:
        found: Sequence[Row | Chart] = module.rows()
    except Exception:
        console.print(traceback.format_exc(), markup=False)
        found = [Row(f"{group} ended with an error", None)]
    rows = [row for row in found if isinstance(row, Row)]
    table = Table("figure", "measured", "bound", "", title=group)
    for row in rows:
        table.add_row(row.name, row.shown(), row.bound_shown(), "" if row.is_met() else "missed")
    console.print(table)
    draw([one for one in found if isinstance(one, Chart)], PAGE.parent / "figures")
    about = (module.__doc__ or "").strip()
    where = when_and_where(load) if any(row.value is not None for row in rows) else ""
    write_section(PAGE, group, GROUPS, section(about, found, where))
    return all(row.is_met() for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.performance.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"some of {', '.join(GROUPS)}")
    asked = parser.parse_args().groups or GROUPS
    if unknown := set(asked) - set(GROUPS):
        parser.error(f"no group is called {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    unwind_when_ended()
    console = Console()
    met = [measure(group, console) for group in asked]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
