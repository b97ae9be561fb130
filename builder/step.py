"""What a plan is made of: steps, and the state of the build that they work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from builder.output import log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from shared.artifact import Manifest
    from shared.progress import StepProgress


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint on this machine."""

    name: str  # the id on the hub, or the last part of the path or URL
    revision: str | None  # the commit it was resolved to; None for what is not on the hub
    path: Path
    files: frozenset[str] = field(init=False)
    """The names in it when it was found: what is gone later is missed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", files_in(self.path))


def files_in(folder: Path) -> frozenset[str]:
    """The names of the files in it; not of the folders."""
    return frozenset(path.name for path in folder.iterdir() if path.is_file())


@dataclass(frozen=True, slots=True)
class BuiltWith:
    """What made an engine, and where it works; the fields of `EngineFacts` with these names."""

    engine_version: str | None = None
    tensorrt_llm_version: str | None = None
    tensorrt_version: str | None = None
    cuda_version: str | None = None
    driver_version: str | None = None
    gpu_name: str | None = None
    sm: int | None = None
    ranks: int = 1
    gpu_bytes: int | None = None


@dataclass(slots=True)
class Build:
    """What the steps of one build pass on."""

    work_dir: Path  # of this build only
    output: Path
    hf_token: str | None = field(repr=False)
    accept: Callable[[Mapping[str, int]], None] = lambda _sizes: None
    """Is told the bytes of each file of a model on the hub before any is fetched, and raises to refuse it."""
    tars: Path | None = None
    """Where a model from a URL is kept, and found again; None: it is fetched for this build alone."""
    model: Model | None = None
    draft: Model | None = None
    """A smaller model that guesses what `model` will write."""
    built_with: BuiltWith = BuiltWith()
    manifest: Manifest | None = None
    packed: dict[str, Path] | None = None
    """The engine's files by their names in the archive, if they are packed from where they are."""
    engine_dir: Path = field(init=False)
    """Otherwise becomes engine/ of the archive."""

    def __post_init__(self) -> None:
        """A step whose tool chooses another place sets `engine_dir` to that."""
        self.engine_dir = self.work_dir / "engine"

    @property
    def log(self) -> Path:
        """The output of TensorRT-LLM's tools; beside the archive, and kept when the build fails."""
        return log_of(self.output)

    @property
    def model_dir(self) -> Path:
        """Where a model is that this build alone uses."""
        return self.work_dir / "models"

    @property
    def tokenizer_dir(self) -> Path:
        """Becomes tokenizer/ of the archive."""
        return self.work_dir / "tokenizer"


class Step(Protocol):
    """A frozen dataclass: its fields are what the config says about it."""

    @property
    def name(self) -> str:
        """A word for logs, progress and errors."""

    def run(self, build: Build, progress: StepProgress) -> None:
        """Run the step. Raises `CogTritonError`."""
