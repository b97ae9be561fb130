"""Every figure of speed, as a ratio within one run: `make bench`.

A row compares what was measured with something else of the same run, so that it means the same on every
machine. Exits with status 1 when a row misses its bound.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tests.performance import (
    cancel_rows,
    images_rows,
    packing_rows,
    prune_rows,
    serving_rows,
    startup_rows,
    weights_rows,
)

if TYPE_CHECKING:
    from tests.performance.row import Row

MODULES = (startup_rows, serving_rows, cancel_rows, packing_rows, weights_rows, prune_rows, images_rows)


def main() -> int:
    console = Console()
    table = Table("figure", "measured", "bound", "")
    rows: list[Row] = []
    for module in MODULES:
        rows += module.rows()
    for row in rows:
        table.add_row(row.name, row.shown(), row.bound_shown(), "" if row.is_met() else "missed")
    console.print(table)
    return int(not all(row.is_met() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
