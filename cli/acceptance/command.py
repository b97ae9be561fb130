"""From the options of the command line to a run of the checks."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from shared.layout import PROJECT_ROOT

from . import CHECKS
from .bench import Bench
from .report import acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(
    model: Path | None,
    work_dir: Path | None,
    engine: str | None,
    against: Path | None,
    report: Path | None,
    only: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Make the checks; the exit status."""
    names = [check.name for check in CHECKS]
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"there is no check {name!r}; there are {', '.join(names)}")
    model = (model or PROJECT_ROOT / "demo/model").resolve()
    if not (model / "config.json").is_file():
        raise typer.BadParameter(f"{model} holds no model: name a folder that does")
    checks = [check for check in CHECKS if not only or check.name in only]
    with ExitStack() as stack:
        if work_dir is None:
            work_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cog-triton-acceptance-")))
        work_dir.mkdir(parents=True, exist_ok=True)
        other = json.loads(against.read_text(encoding="utf-8")) if against else None
        bench = Bench(model, work_dir.resolve(), engine, other)
        return acceptance(checks, bench, as_json=as_json, report=report)
