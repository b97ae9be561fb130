"""The last step: everything that the earlier steps made becomes engine.tar."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from builder.generation_config import GENERATION_CONFIG, generation_config
from builder.sources.download import TOKENIZER_FILES
from builder.step import files_in
from shared import VERSION
from shared.artifact import EngineFacts, PackedFile, write_archive
from shared.errors import PackageFailed

if TYPE_CHECKING:
    from pathlib import Path

    from builder.step import Build
    from shared.progress import StepProgress


@dataclass(frozen=True, slots=True)
class Package:
    """Write `Build.output` and set `Build.manifest`."""

    engine: str
    config: dict[str, Any]  # the effective config; it holds no secrets

    name: ClassVar[str] = "package"

    def run(self, build: Build, progress: StepProgress) -> None:
        """Raises NotEnoughSpace and PackageFailed."""
        files = packed_files(build, self.config)
        try:
            total = sum(file.size() for file in files)
        except OSError as error:
            raise PackageFailed(path=build.output, reason=str(error)) from None
        facts = facts_of(self.engine, build)
        build.manifest = write_archive(build.output, facts, files, lambda done: progress(done, total))


def facts_of(engine: str, build: Build) -> EngineFacts:
    """What the manifest says about the engine that `build` has made."""
    return EngineFacts(
        engine=engine,
        model=build.model.name if build.model else engine,
        revision=build.model.revision if build.model else None,
        cog_triton_version=VERSION,
        **asdict(build.built_with),
    )


def packed_files(build: Build, config: dict[str, Any]) -> list[PackedFile]:
    """All files of the archive but its manifest: also those of the model that have been removed since the
    build began.
    """
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
    tokenizer = build.model.path if build.model else build.tokenizer_dir
    known = build.model.files if build.model else files_in(tokenizer)
    copied = [name for name in TOKENIZER_FILES if name in known and name != GENERATION_CONFIG]
    files = [
        PackedFile("config.json", text),
        *(PackedFile(name, path) for name, path in _engine_files(build).items()),
        *(PackedFile(f"tokenizer/{name}", tokenizer / name) for name in copied),
    ]
    published = tokenizer / GENERATION_CONFIG
    is_gone = GENERATION_CONFIG in known and not published.exists()  # told by its name, as the others are
    if (generation := published if is_gone else generation_config(tokenizer)) is not None:
        files.append(PackedFile(f"tokenizer/{GENERATION_CONFIG}", generation))
    return files


def _engine_files(build: Build) -> dict[str, Path]:
    """The engine's files, by their names in the archive."""
    if build.packed is not None:
        return build.packed
    root = build.engine_dir
    return {f"engine/{path.relative_to(root).as_posix()}": path for path in root.rglob("*") if path.is_file()}
