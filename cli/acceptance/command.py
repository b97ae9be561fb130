"""From the options of the command line to a run of the checks."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from builder.sources.download import Download
from builder.step import Build
from shared.layout import PROJECT_ROOT, Layout
from shared.logs import configure_logging, register_secret
from shared.progress import stderr_progress

from . import CHECKS
from .bench import Bench
from .report import acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(
    model: str | None,
    work_dir: Path | None,
    engine: str | None,
    against: Path | None,
    report: Path | None,
    only: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Make the checks; the exit status.

    Raises E4000 where TensorRT-LLM is not installed, and E31xx for a model that cannot be had.
    """
    names = [check.name for check in CHECKS]
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"there is no check {name!r}; there are {', '.join(names)}")
    Layout.current().engine_python("tensorrt_llm")
    register_secret(os.environ.get("HF_TOKEN", ""))
    configure_logging()
    checks = [check for check in CHECKS if not only or check.name in only]
    with ExitStack() as stack:
        if work_dir is None:
            work_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cog-triton-acceptance-")))
        work_dir.mkdir(parents=True, exist_ok=True)
        other = json.loads(against.read_text(encoding="utf-8")) if against else None
        work_dir = work_dir.resolve()
        bench = Bench(_fetched(model or str(PROJECT_ROOT / "demo/model"), work_dir), work_dir, engine, other)
        return acceptance(checks, bench, as_json=as_json, report=report)


def _fetched(model: str, work_dir: Path) -> Path:
    """The folder of a model, fetched as a build does it."""
    build = Build(work_dir, work_dir / "engine.tar", os.environ.get("HF_TOKEN"))
    with stderr_progress().step("model") as progress:
        Download(model).run(build, progress)
    assert build.model is not None
    return build.model.path.resolve()
