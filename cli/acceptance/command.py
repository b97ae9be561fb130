"""From the options of the command line to a run of the checks."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from builder.sources.download import Download
from builder.step import Build
from shared.layout import PROJECT_ROOT, Layout
from shared.logs import configure_logging, register_secret
from shared.progress import stderr_progress

from . import CHECKS
from .report import acceptance
from .tensorrt_llm.bench import TensorRTLLMBench
from .vllm.bench import VLLMBench

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bench import Bench

_FIRST = next(iter(CHECKS))


def run(
    model: str | None,
    work_dir: Path | None,
    engine: str | None,
    archive: str | None,
    engine_args: str | None,
    against: Path | None,
    report: Path | None,
    only: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Make the checks of an engine; the exit status.

    Raises E4000 where it is not installed, and E31xx for a model that cannot be had.
    """
    kind = engine or next((kind for kind in CHECKS if kind in Layout.current().available_engines()), _FIRST)
    if kind not in CHECKS:
        raise typer.BadParameter(f"there is no engine {kind!r} to look at, only {', '.join(CHECKS)}")
    arguments = _object(engine_args)
    names = [check.name for check in CHECKS[kind]]
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"there is no check {name!r}; there are {', '.join(names)}")
    Layout.current().engine_python(kind)
    register_secret(os.environ.get("HF_TOKEN", ""))
    configure_logging()
    checks = [check for check in CHECKS[kind] if not only or check.name in only]
    with ExitStack() as stack:
        if work_dir is None:
            work_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cog-triton-acceptance-")))
        work_dir.mkdir(parents=True, exist_ok=True)
        other = json.loads(against.read_text(encoding="utf-8")) if against else None
        work_dir = work_dir.resolve()
        place = _fetched(model or str(PROJECT_ROOT / "demo/model"), work_dir)
        bench: Bench
        if kind == VLLMBench.kind:
            bench = VLLMBench(place, work_dir, other, arguments)
        else:
            bench = TensorRTLLMBench(place, work_dir, other, archive)
        return acceptance(checks, bench, as_json=as_json, report=report)


def _object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"the engine arguments are no JSON object: {text}")
    return found


def _fetched(model: str, work_dir: Path) -> Path:
    """The folder of a model, fetched as a build does it; a relative path counts from here."""
    model = str(Path(model).resolve()) if Path(model).is_dir() else model
    build = Build(work_dir, work_dir / "engine.tar", os.environ.get("HF_TOKEN"))
    with stderr_progress().step("model") as progress:
        Download(model).run(build, progress)
    assert build.model is not None
    return build.model.path.resolve()
