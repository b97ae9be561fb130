"""The step that turns a checkpoint into an engine, in a child process in the engine's own environment."""

from __future__ import annotations

import re
import signal
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from builder.child import environment, follow_child
from builder.step import BuiltWith
from shared.errors import ConversionFailed, HostMemoryExhausted, from_text
from shared.layout import PROJECT_ROOT, Layout
from shared.logs import get_logger
from shared.signals import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.step import Build
    from shared.errors import CogTritonError
    from shared.progress import StepProgress

_log = get_logger()

_KEPT_LINES = 50
_PROGRESS = re.compile(r"progress (\d+) (\d+)")
_FOLDERS = re.compile(r"(?:/[^\s/:'\"]+)+/")


@dataclass(frozen=True, slots=True)
class Convert:
    """Convert `Build.model` for `engine` into `Build.engine_dir`, and set `Build.built_with`."""

    engine: str
    quantization: str

    name: ClassVar[str] = "convert"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises what `run_child` does: UnsupportedArchitecture, CheckpointInvalid, NotEnoughSpace,
        HostMemoryExhausted or ConversionFailed; and PartNotInstalled when the environment of the engine is
        missing.
        """
        assert build.model is not None
        python = Layout.current().engine_python(self.engine)
        version: list[str] = []
        run_child(
            self.name,
            [str(python), "-c", _VERSION_PROGRAM, self.engine],
            cwd=build.work_dir,
            on_line=version.append,
        )
        build.built_with = BuiltWith(engine_version=version[0])

        def on_line(line: str) -> None:
            if counts := _PROGRESS.fullmatch(line):
                progress(int(counts[1]), int(counts[2]))
            else:
                _log.info("conversion", line=line)

        build.engine_dir.mkdir()
        command = [
            str(python), "-m", f"builder.engines.{self.engine}",
            "--model", str(build.model.path),
            "--output", str(build.engine_dir),
            "--quantization", self.quantization,
        ]  # fmt: skip
        run_child(self.name, command, cwd=build.work_dir, on_line=on_line)


_VERSION_PROGRAM = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def run_child(step: str, command: Sequence[str], *, cwd: Path, on_line: Callable[[str], None]) -> None:
    """Run `command` until it ends and pass each line of its stdout to `on_line`; stderr goes to the log.

    Raises the coded error that the child wrote to stderr, HostMemoryExhausted, or ConversionFailed naming
    `step`.
    """
    complaints: deque[str] = deque(maxlen=_KEPT_LINES)

    def on_complaint(line: str) -> None:
        complaints.append(line)
        _log.warning(step, line=line)

    env = environment() | {"PYTHONPATH": str(PROJECT_ROOT), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    ended = follow_child(command, cwd=cwd, env=env, on_line=on_line, on_complaint=on_complaint)
    _log.info("child ended", step=step, seconds=round(ended.seconds, 3), peak_memory=ended.peak_memory)
    if ended.status:
        raise from_text("\n".join(complaints)) or failure(step, ended.status, complaints)


def failure(step: str, status: int, lines: Sequence[str]) -> CogTritonError:
    """The error for a child that ended with `status` after `lines`, with folders removed from them."""
    if status == -signal.SIGKILL:
        return HostMemoryExhausted(step=step)
    if status < 0:
        reason = f"it ended with {in_words(status)}"
    else:
        last = without_folders(lines[-1]).rstrip(".") if lines else "it printed nothing"
        reason = f"it ended with status {status}: {last}"
    return ConversionFailed(step=step, reason=reason)


def without_folders(text: str) -> str:
    """`text` with only the last part of each absolute path: the rest is of no use to its reader."""
    return _FOLDERS.sub("", text)
