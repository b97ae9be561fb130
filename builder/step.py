"""What a plan is made of: steps, and the state of the build that they work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from shared.artifact import Manifest
    from shared.progress import StepProgress


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint on this machine."""

    name: str  # the id on the hub, or the last part of the path or URL
    revision: str | None  # the commit it was resolved to; None for what is not on the hub
    path: Path


@dataclass(slots=True)
class Build:
    """What the steps of one build hand on."""

    work_dir: Path  # of this build alone
    output: Path
    hf_token: str | None = field(repr=False)
    model: Model | None = None
    engine_version: str | None = None
    manifest: Manifest | None = None

    @property
    def engine_dir(self) -> Path:
        """Becomes engine/ of the archive."""
        return self.work_dir / "engine"

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
        """Do it. Raises `CogTritonError`."""
