"""docs/performance.md: what was measured, a section for each group of rows, below the words written by hand.

Only the sections of the groups that were measured are rewritten; each says when and where that was.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sysconfig
import time
import timeit
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from shared import VERSION
from shared.layout import PROJECT_ROOT, Layout
from tests.performance.environment import bench_python
from tests.performance.row import Chart, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = PROJECT_ROOT / "docs/performance.md"
_MARK = "<!-- measured: what follows is written by `make bench` -->\n"
_PLOTS = Path(__file__).with_name("plots.py")


def write_section(page: Path, group: str, groups: Sequence[str], text: str) -> None:
    """Put the section of one group where the order of all groups has it."""
    words, mark, measured = page.read_text().partition(_MARK)
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", measured, flags=re.MULTILINE)[1:]}
    sections[_title(group)] = f"{_title(group)}\n\n{text.rstrip()}\n\n"
    kept = [f"## {sections[_title(name)]}" for name in groups if _title(name) in sections]
    page.write_text(words + mark + "\n" + "".join(kept).rstrip() + "\n")


def _title(group: str) -> str:
    return group.capitalize()


def section(about: str, found: Sequence[Row | Chart], where: str) -> str:
    """What is below the title: what it is, the table, the figures, and where it was measured."""
    parts = [about]
    rows = [row for row in found if isinstance(row, Row)]
    lines = ["| figure | measured | bound | |", "|---|---|---|---|"]
    for row in rows:
        shown = f"not here: `{row.command}`" if row.command else row.shown()
        cells = (row.name, shown, row.bound_shown(), "" if row.is_met() else "missed")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if rows:
        parts.append("\n".join(lines))
    parts += [f"![{one.title}](figures/{one.name}.svg)" for one in found if isinstance(one, Chart)]
    return "\n\n".join([*parts, where])


def draw(charts: Sequence[Chart], folder: Path) -> None:
    """Write the figures, in the environment that has the library for it."""
    folder.mkdir(exist_ok=True)
    if charts:
        subprocess.run(
            [bench_python(), _PLOTS, folder],
            input=json.dumps([asdict(chart) for chart in charts]).encode(),
            check=True,
        )


def when_and_where(load: float) -> str:
    """The date, the machine, the versions, and how many processes ran or waited for a core before."""
    return (
        f"Measured on {datetime.now(UTC):%d %B %Y} on {_machine()}; load average {load:.1f} before; "
        f"{_python()}; {_versions()}."
    )


def _machine() -> str:
    """The processor, and how much of it there is."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else 'an unnamed processor'}"


def _python() -> str:
    """Which it is, and how fast: builds of one version differ by a factor of two."""
    levels = re.findall(r"-O\w", sysconfig.get_config_var("PY_CFLAGS") or "")
    additions = "for i in range(1000): i + i"
    loop = min(timeit.repeat(additions, number=1000, repeat=7, timer=time.process_time))
    return (
        f"Python {platform.python_version()} (built {platform.python_build()[1]} with "
        f"{platform.python_compiler()} {levels[-1] if levels else ''}; {1e3 * loop:.0f} ns for an addition in a loop)"
    )


def _versions() -> str:
    triton = next(iter(metadata.distributions(path=[str(Layout.current().home / "triton")])))
    packages = ", ".join(
        f"{name} {metadata.version(name)}" for name in ("cog", "uvicorn", "uvloop", "tokenizers")
    )
    return f"cog-triton {VERSION}, Triton of {triton.name} {triton.version}, {packages}"
