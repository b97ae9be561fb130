"""The step that turns a checkpoint into an engine, in a child process in the engine's own environment."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, ClassVar

import structlog

from shared.errors import ConversionFailed, from_text
from shared.layout import PROJECT_ROOT, Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from builder.step import Build
    from shared.progress import StepProgress

_log = structlog.get_logger()

_POLL_SECONDS = 0.2  # a cancelled build is noticed between two polls
_KEPT_LINES = 50
_PROGRESS = re.compile(r"progress (\d+) (\d+)")
_FOLDERS = re.compile(r"(?:/[^\s/:'\"]+)+/")
# Everything else stays here: a child that reads foreign files needs no secret.
_PASSED_ON = (
    "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "PATH", "TMPDIR",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Convert:
    """Convert `Build.model` for `engine` into `Build.engine_dir`, and set `Build.engine_version`."""

    engine: str
    quantization: str

    name: ClassVar[str] = "convert"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises E3200 to E3202, and E4000 when the environment of the engine is missing."""
        assert build.model is not None
        python = Layout.current().engine_python(self.engine)
        version: list[str] = []
        run_child(
            self.name,
            [str(python), "-c", _VERSION_PROGRAM, self.engine],
            cwd=build.work_dir,
            on_line=version.append,
        )
        build.engine_version = version[0]

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
    """Run `command` to its end and hand each line of its stdout to `on_line`; stderr goes to the log.

    The child is the leader of a process group, which is killed when this call is left in any other way.
    Raises the coded error that the child wrote to stderr, or E3202 naming `step`.
    """
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment |= {"PYTHONPATH": str(PROJECT_ROOT), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    complaints: deque[str] = deque(maxlen=_KEPT_LINES)

    def on_complaint(line: str) -> None:
        complaints.append(line)
        _log.warning(step, line=line)

    try:
        _follow({child.stdout: on_line, child.stderr: on_complaint})
        # Not reaped yet: its process group must still be its own when it is killed.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
    if status:
        raise from_text("\n".join(complaints)) or ConversionFailed(step=step, reason=_why(status, complaints))


def _follow(readers: dict[IO[str], Callable[[str], None]]) -> None:
    """Hand on the lines of several pipes until all are closed, without ever blocking for long."""
    lines: queue.SimpleQueue[tuple[IO[str], str]] = queue.SimpleQueue()

    def pump(pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                lines.put((pipe, line))
        lines.put((pipe, ""))

    for pipe in readers:
        threading.Thread(target=pump, args=(pipe,), daemon=True).start()
    still_open = len(readers)
    while still_open:
        try:
            pipe, line = lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        if not line:
            still_open -= 1
        elif text := line.strip():
            readers[pipe](text)


def _why(status: int, complaints: Sequence[str]) -> str:
    if status == -signal.SIGKILL:
        return "it was killed by signal 9 (SIGKILL), likely because the memory ran out"
    if status < 0:
        return f"it was killed by signal {-status} ({signal.Signals(-status).name})"
    last = _FOLDERS.sub("", complaints[-1]) if complaints else "it said nothing"
    return f"it ended with status {status}: {last}"
