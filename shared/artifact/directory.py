"""An unpacked engine.tar."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from typing import Any

from shared.errors import (
    CogTritonError,
    EngineArchiveCorrupt,
    EngineArchiveMalformed,
    ModelRepositoryNotServed,
    WeightsNotFound,
    WeightsUnreachable,
)
from shared.lora import ADAPTERS
from shared.unreadable import FORBIDDEN, reason_of

from .manifest import CONFIG, MANIFEST, Manifest

_FOLDERS = ("engine", "draft", "tokenizer", ADAPTERS, "compiled")
_BACKEND = re.compile(r'^\s*backend\s*:\s*"(\w+)"', re.MULTILINE)


@dataclass(frozen=True)
class EngineDirectory:
    """Where the parts of an unpacked engine are. Raises ModelRepositoryNotServed and WeightsNotFound when
    there is no engine at `path`, and WeightsUnreachable for what this user may not read.

    Archives from before manifests are flat: all their files are in one directory.
    """

    path: Path

    def __post_init__(self) -> None:
        try:
            if (self.path / CONFIG).is_file():
                return
            whole = self.path.resolve()  # "." is not a name for it in a sentence
            _refuse_model_repository(whole)
        except OSError as error:
            raise WeightsUnreachable(source=error.filename or self.path, reason=reason_of(error)) from None
        raise WeightsNotFound(source=whole)

    @cached_property
    def manifest(self) -> Manifest | None:
        """What the builder said about it; None for one from before manifests. Raises WeightsUnreachable,
        EngineArchiveMalformed, EngineArchiveVersion and EngineArchiveCorrupt.
        """
        try:
            text = self._read(MANIFEST)
        except FileNotFoundError:
            return None
        return Manifest.from_bytes(text)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The object in config.json. Raises EngineArchiveMalformed when it is not one, WeightsUnreachable."""
        try:
            config = json.loads(self._read(CONFIG))
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            raise EngineArchiveMalformed(reason=f"{CONFIG} in it is not a JSON object")
        return config

    def _read(self, name: str) -> bytes:
        """Raises FileNotFoundError, EngineArchiveMalformed for what is not a file, and WeightsUnreachable."""
        path = self.path / name
        try:
            if not S_ISREG(path.stat().st_mode):  # reading a pipe would wait
                raise EngineArchiveMalformed(reason=f"{name} in it is not a file")
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise WeightsUnreachable(source=path, reason=reason_of(error)) from None

    def refuse_unreadable(self) -> None:
        """Raises WeightsUnreachable for a part that this user may not read: engines and libraries would say
        so in words of their own, or take it for damaged.
        """
        flat = not (self.path / "engine").is_dir()
        for top in [self.path] if flat else [self.path / name for name in _FOLDERS]:
            for folder, below, names in os.walk(top, onerror=_refuse_forbidden):
                if flat:
                    below.clear()  # what is there belongs to others
                for name in names:
                    _refuse_unless_readable(Path(folder, name))

    @property
    def adapters(self) -> Path | None:
        """The folder of the LoRA adapters that belong to it."""
        folder = self.path / ADAPTERS
        return folder if folder.is_dir() else None

    @property
    def tokenizer_files(self) -> Path:
        """The directory of the tokenizer's files; those of an old engine are beside its own."""
        folder = self.path / "tokenizer"
        return folder if folder.is_dir() else self.path


def is_damaged(folder: Path) -> bool:
    """Whether an unpacked engine lacks files, or has them with other sizes, as when it was half deleted."""
    try:
        manifest = EngineDirectory(folder).manifest
    except (WeightsNotFound, EngineArchiveMalformed, EngineArchiveCorrupt):
        return True
    except CogTritonError:  # told when it is used
        return False
    if manifest is None:
        return (folder / "engine").is_dir()  # those from before manifests have no folders
    for file in manifest.files:
        try:
            if (folder / file.name).stat().st_size != file.size:
                return True
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
    return False


def _refuse_unless_readable(path: Path) -> None:
    try:
        path.stat()
    except FileNotFoundError:
        return  # a link that leads nowhere
    except OSError as error:
        raise WeightsUnreachable(source=path, reason=reason_of(error)) from None
    if not os.access(path, os.R_OK):
        raise WeightsUnreachable(source=path, reason=FORBIDDEN)


def _refuse_forbidden(error: OSError) -> None:
    if isinstance(error, PermissionError):
        raise WeightsUnreachable(source=error.filename, reason=reason_of(error))


def _refuse_model_repository(path: Path) -> None:
    """Raise ModelRepositoryNotServed for a model repository that is for other backends than ours.

    One with a model of vLLM's backend is served, without becoming an engine here.
    """
    found = [config for config in path.glob("*/config.pbtxt") if config.is_file()]
    configs = [config.read_text(errors="replace") for config in found]
    backends = sorted({name for config in configs for name in _BACKEND.findall(config)} - {"engine_bridge"})
    if backends and "vllm" not in backends:
        inside = next(iter(sorted(path.glob(f"*/1/{CONFIG}"))), None)
        engine = "the engine itself" if inside is None else f"the engine in it, {inside.parent},"
        raise ModelRepositoryNotServed(path=path, backends=", ".join(backends), engine=engine)
