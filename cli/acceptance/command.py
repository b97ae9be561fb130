"""From the options of the command line to a run of the checks."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from builder.check.source import check_source
from builder.pipeline import work_folder
from builder.sources.download import Download
from builder.step import Build
from cli.engines import vllm_config
from cli.report_file import check_report
from shared.config import VLLMConfig
from shared.errors import OutputRefused, PartNotInstalled
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

_CONFIGS = (".yaml", ".yml")
_MAX_CHARACTERS = 1 << 24  # a run prints some ten thousand


def run(
    model: str | None,
    work_dir: Path | None,
    engine: str | None,
    archive: str | None,
    against: Path | None,
    report: Path | None,
    only: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Run the checks of an engine; return the exit status.

    Raises PartNotInstalled where it is not installed, what `load_config` raises for a wrong config,
    DownloadFailed or its like (E31xx) for a model that cannot be fetched, WorkFolderUnusable and
    OutputRefused.
    """
    layout = Layout.current()
    model = str(PROJECT_ROOT / "demo/model") if model is None else model
    config, folder = _config(model)
    kind = (config.engine if config else _installed(layout)) if engine is None else engine
    if kind is not None and kind not in CHECKS:
        raise typer.BadParameter(f"there are no checks of an engine {kind!r}, only of {' and '.join(CHECKS)}")
    names = list(
        dict.fromkeys(check.name for one in (CHECKS if kind is None else [kind]) for check in CHECKS[one])
    )
    for name in only:
        if name not in names:
            raise typer.BadParameter(f"there is no check {name!r}; there are {', '.join(names)}")
    other = _other_run(against)
    if archive is not None and not os.path.isfile(archive):  # noqa: PTH113 - Path raises for too long a name
        raise typer.BadParameter(f"there is no file {archive}", param_hint="--archive")
    if kind is None:
        part = f"environment of the engine {' or '.join(CHECKS)}"
        raise PartNotInstalled(part=part, place=layout.home / "engines")
    layout.engine_python(kind)
    register_secret(os.environ.get("HF_TOKEN", ""))
    configure_logging()
    checks = [check for check in CHECKS[kind] if not only or check.name in only]
    with ExitStack() as stack:
        if work_dir is None:
            work_dir = stack.enter_context(work_folder(what="acceptance"))
        _make_folder(work_dir)
        if report is not None:
            check_report(report)
        work_dir = work_dir.resolve()
        # A relative path starts here. Path raises for too long a name.
        if os.path.isdir(model):  # noqa: PTH112
            model = str(Path(model).resolve())
        bench: Bench
        if kind == VLLMBench.kind:
            config = config or vllm_config(model)
            bench = VLLMBench(config, work_dir, other, folder or Path.cwd())
        else:
            bench = TensorRTLLMBench(_fetched(model, work_dir), work_dir, other, archive)
        return acceptance(checks, bench, as_json=as_json, report=report)


def _make_folder(folder: Path) -> None:
    """Raise OutputRefused unless this user may write to `folder`, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(folder, os.W_OK | os.X_OK) else "this user may not write to it"
    except OSError as error:
        reason = error.strerror
    if reason is not None:
        raise OutputRefused(
            path=folder, reason=reason, fix="Choose another folder, or change its permissions"
        )


def _config(model: str) -> tuple[VLLMConfig | None, Path | None]:
    """The config of vLLM that is given in place of a model, and the folder where its paths start."""
    if Path(model).suffix not in _CONFIGS:
        return None, None
    found = check_source(model)
    config = found.build_config()
    if not isinstance(config, VLLMConfig):
        raise typer.BadParameter("only a config of vLLM can take the place of a model")
    return config, found.folder


def _installed(layout: Layout) -> str | None:
    there = layout.available_engines()
    return next((kind for kind in CHECKS if kind in there), None)


def _other_run(against: Path | None) -> dict[str, Any] | None:
    """What the acceptance in another image printed with --json."""
    if against is None:
        return None
    try:
        with against.open(encoding="utf-8") as file:
            found = json.loads(file.read(_MAX_CHARACTERS))
    except OSError as error:
        raise typer.BadParameter(f"{against}: {error.strerror}", param_hint="--against") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not {"model", "texts"} <= found.keys():
        wanted = "what `cog-triton acceptance --json` printed"
        raise typer.BadParameter(f"{against} is not {wanted}", param_hint="--against")
    return found


def _fetched(model: str, work_dir: Path) -> Path:
    """The folder of a model, fetched as a build does it."""
    build = Build(work_dir, work_dir / "engine.tar", os.environ.get("HF_TOKEN"))
    with stderr_progress().step("model") as progress:
        Download(model, beside=Path.cwd()).run(build, progress)
    assert build.model is not None
    return build.model.path.resolve()
