"""From the address of a config to engine.tar."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

from builder.check.source import check_source
from builder.disk import watched_disk
from builder.output import check_output
from builder.plan import make_plan
from builder.step import Build, Step
from shared.errors import (
    UNEXPECTED,
    CogTritonError,
    ConversionFailed,
    EngineNotInImage,
    WorkFolderUnusable,
)
from shared.layout import Layout
from shared.logs import get_logger, register_secret
from shared.own_directory import own_directory
from shared.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from shared.artifact import Manifest
    from shared.progress import Progress, StepProgress

_log = get_logger()


def build(
    source: str,
    output: Path,
    *,
    hf_token: str | None = None,
    work_dir: Path | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Build the engine that the config at `source` asks for and write it to `output`; return its manifest.

    `source` is a URL, a data: URL or a path. `work_dir` (default: the machine's temporary directory) needs
    room for the engine; what is made there is always removed, and `output` appears complete or not at all.
    The output of a TensorRT-LLM build's tools is kept beside it, as `output` with `.log` appended. Raises a
    build's errors (E3xxx).
    """
    if hf_token:
        register_secret(hf_token)
    progress = progress or SilentProgress()
    check_output(output)
    report = check_source(source)
    plan = make_plan(report.build_config(), report.folder)
    for one in report.diagnostics:
        _log.warning("config", found=str(one))
    _check_engine(plan.engine)
    with work_folder(work_dir) as directory:
        state = Build(directory, output, hf_token)
        state.log.unlink(missing_ok=True)
        run_steps(plan.steps, state, progress)
    assert state.manifest is not None
    return state.manifest


@contextmanager
def work_folder(place: Path | None = None, what: str = "build") -> Iterator[Path]:
    """A temporary folder in `place` (default: the machine's own); those that killed processes left there are
    removed. Raises WorkFolderUnusable.
    """
    with ExitStack() as stack:
        try:
            parent = place or Path(gettempdir())
            folder = stack.enter_context(own_directory(f"cog-triton-{what}-", parent))
        except OSError as error:
            # Without a file name, it is that no place was found, and the text lists those that Python tried.
            why = f" ({error.strerror})" if error.filename else ""
            reason = f"no folder can be made in {place or 'TMPDIR, /tmp or /var/tmp'}{why}"
            raise WorkFolderUnusable(reason=reason) from None
        yield folder


def run_steps(steps: Iterable[Step], state: Build, progress: Progress) -> None:
    """Run them one after another. Raises a build's errors (E3xxx)."""
    for step in steps:
        _log.info("step started", step=step.name)
        started = time.monotonic()
        with progress.step(step.name) as show:
            _run(step, state, show)
        _log.info("step finished", step=step.name, seconds=round(time.monotonic() - started, 3))


def _check_engine(engine: str) -> None:
    """Refuse what would fail only after the download. Packing a model for vLLM does not need vLLM."""
    available = sorted({*Layout.current().available_engines(), "vllm"})
    if engine not in available:
        raise EngineNotInImage(engine=engine, available=", ".join(available))


def _run(step: Step, state: Build, show: StepProgress) -> None:
    """Run one step; an unexpected error becomes ConversionFailed, without the paths in its text."""
    try:
        # Named is the folder above: the build's own is gone when this is read.
        with watched_disk(step.name, state.work_dir.parent):
            step.run(state, show)
    except CogTritonError:
        raise
    except Exception as error:
        _log.exception("step failed", step=step.name)
        reason = (error.strerror if isinstance(error, OSError) else None) or UNEXPECTED
        raise ConversionFailed(step=step.name, reason=reason) from error
