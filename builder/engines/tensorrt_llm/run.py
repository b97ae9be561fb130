"""The steps that run a tool of TensorRT-LLM: in the engine's environment, in the work directory."""

from __future__ import annotations

import shlex
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.child import PASSED_ON, environment, follow_child
from builder.disk import watched_disk
from builder.engines.tensorrt_llm.commands import MODEL_DIR, RunTool
from builder.engines.tensorrt_llm.failures import coded
from builder.engines.tensorrt_llm.model_folder import lay_out
from builder.output import LOG_MARK
from shared.errors import ConversionFailed, PartNotInstalled
from shared.home import writable_home
from shared.layout import Layout
from shared.logs import get_logger
from shared.signals import in_words
from shared.sizes import readable

if TYPE_CHECKING:
    from pathlib import Path

    from builder.step import Build
    from shared.progress import StepProgress

_log = get_logger()

_KEPT_LINES = 400  # a traceback with those of its workers
# The tools load TensorRT-LLM itself, look for GPUs, and quantize.py for its calibration data. No token.
_PASSED_ON = (
    *PASSED_ON,
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_HOME", "OPAL_PREFIX", "TLLM_LOG_LEVEL",
    "BUILDER_FORCE_NUM_PROFILES", "FORCE_DETERMINISTIC", "FORCE_ALL_REDUCE_DETERMINISTIC",
    "FORCE_ALLREDUCE_KERNEL_WORKSPACE_SIZE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToolStep:
    """Run `tool` and set `Build.engine_dir` to what it wrote: the last tool writes the engine."""

    tool: RunTool

    @property
    def name(self) -> str:
        """The step's name in the config."""
        return self.tool.name

    def run(self, build: Build, progress: StepProgress) -> None:
        """Append its output to `Build.log`, with the seconds and the memory it took.

        Raises NotEnoughSpace, what `failures.coded` returns, and PartNotInstalled when the tool is missing.
        """
        assert build.model is not None
        if not (place := build.work_dir / MODEL_DIR).exists():
            lay_out(build.model.path, place)
        output = build.work_dir / self.tool.output_dir
        variables = environment(_PASSED_ON) | {
            "HOME": writable_home(build.work_dir),
            "PYTHONUNBUFFERED": "1",
            "PYTHONNOUSERSITE": "1",
        }
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        # Beside the output, and thus often on another disk than the work folder. Watched from outside of the
        # `open`, as what could not be written is tried once more when the log is closed.
        with (
            watched_disk(self.name, build.log.parent.absolute()),
            build.log.open("a", encoding="utf-8", buffering=1) as log,
        ):
            log.write(f"{LOG_MARK}{self.name}: {self.tool.tool} {shlex.join(self.tool.arguments)}\n")

            def on_line(line: str) -> None:
                lines.append(line)
                log.write(f"{line}\n")
                _log.info(self.name, line=line)

            ended = follow_child(
                _command(self.tool),
                cwd=build.work_dir,
                env=variables,
                on_line=on_line,
                on_poll=lambda: progress(_size(output)),
            )
            took = f"{ended.seconds:.1f} s, {readable(ended.peak_memory)} of memory"
            log.write(f"{LOG_MARK}{self.name}: ended with {in_words(ended.status)} after {took}\n")
        _log.info(
            "tool ended", step=self.name, seconds=round(ended.seconds, 3), peak_memory=ended.peak_memory
        )
        if ended.status:
            raise coded(self.name, ended.status, lines)
        if not (output / "config.json").is_file():
            raise ConversionFailed(
                step=self.name, reason=f"it wrote no config.json to {self.tool.output_dir}"
            )
        build.engine_dir = output


def _command(tool: RunTool) -> list[str]:
    python = Layout.current().engine_python("tensorrt_llm")
    program = python.with_name(tool.tool)
    if tool.script is not None:
        program = python.parent.parent / "examples" / tool.script
    if not program.is_file():
        raise PartNotInstalled(part=tool.tool, place=program)
    # Through the interpreter: the first line of a program names one that need not be this one.
    return [str(python), str(program), *tool.arguments]


def _size(directory: Path) -> int:
    """Bytes of the files in `directory`, which is being written."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.lstat().st_size
        except FileNotFoundError:
            continue
    return total
