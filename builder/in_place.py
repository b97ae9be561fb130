"""A vLLM engine that is served from where its model is: a folder of links instead of an archive."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from typing import TYPE_CHECKING

from builder.package import facts_of, packed_files
from builder.pipeline import run_steps
from builder.plan import make_plan
from builder.step import Build
from shared.artifact import CONFIG as ENGINE_CONFIG
from shared.artifact import MANIFEST, Manifest, PackedFile, is_damaged
from shared.config import dump_config
from shared.errors import WeightsNotStored
from shared.lora import ADAPTERS, CONFIG, WEIGHTS
from shared.own_directory import own_directory
from shared.progress import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from shared.config import VLLMConfig
    from shared.progress import Progress


def in_place(
    config: VLLMConfig,
    cache: Path,
    *,
    folder: Path | None = None,
    adapters: Mapping[str, Path] | None = None,
    hf_token: str | None = None,
    accept: Callable[[Mapping[str, int]], None] = lambda _sizes: None,
    progress: Progress | None = None,
) -> Path:
    """The folder below `cache` that a runner serves as an unpacked engine; its weights are links.

    A model on the hub is fetched into the hub's cache unless it is there, one from a URL into `cache`. The
    same model with the same config gives the same folder. Paths in `config` start at `folder`; `adapters` are
    the folders of its LoRA adapters, by name; `accept` is that of `Build`. Raises the errors of a download
    and a conversion (E31xx, E32xx), WeightsNotStored when `cache` cannot be written to, and what `accept`
    raises.
    """
    *steps, _package = make_plan(config, folder).steps
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with own_directory(".in-place-", cache.absolute()) as scratch:
            state = Build(scratch, cache, hf_token, accept, tars=cache.absolute())
            run_steps(steps, state, progress or SilentProgress())
            files = packed_files(state, dump_config(config))
            files += [
                PackedFile(f"{ADAPTERS}/{name}/{part}", path / part)
                for name, path in (adapters or {}).items()
                for part in (CONFIG, WEIGHTS)
            ]
            place = cache / f"in-place-{_digest(files, state, config)}"
            if not _is_whole(place, files, state):
                made = state.work_dir / "made"
                _write(made, files, state, config)
                _publish(made, place)
            return place
    except OSError as error:
        raise WeightsNotStored(path=cache, reason=error.strerror or str(error)) from error


def _is_whole(place: Path, files: list[PackedFile], state: Build) -> bool:
    """Whether nothing of it is missing or empty, as after a power failure, or when it was half deleted."""
    try:
        return not is_damaged(place) and all(_is_kept(place / file.name, file, state) for file in files)
    except OSError:
        return False


def _is_kept(path: Path, file: PackedFile, state: Build) -> bool:
    if isinstance(file.source, bytes):
        return path.read_bytes() == file.source
    if _is_made(file.source, state):
        return path.read_bytes() == file.source.read_bytes()
    return os.path.realpath(path) == os.path.realpath(file.source)


def _publish(made: Path, place: Path) -> None:
    """Move the folder to its place, unless another process has just put the same one there."""
    shutil.rmtree(place, ignore_errors=True)
    try:
        made.rename(place)
    except OSError:
        if not (place / MANIFEST).is_file():
            raise


def _digest(files: list[PackedFile], state: Build, config: VLLMConfig) -> str:
    """A digest of names, contents that are made here, the targets of links, and what the manifest says."""
    told = {file.name: _told(file, state) for file in files}
    facts = facts_of(config.engine, state).model_dump(mode="json")
    return sha256(json.dumps([told, facts], sort_keys=True).encode()).hexdigest()[:32]


def _told(file: PackedFile, state: Build) -> str:
    if isinstance(file.source, bytes):
        return file.source.decode()
    if _is_made(file.source, state):
        return sha256(file.source.read_bytes()).hexdigest()
    return os.path.realpath(file.source)


def _is_made(path: Path, state: Build) -> bool:
    """Whether the file is one that only this start has: a tokenizer that was made for it."""
    return path.resolve().is_relative_to(state.work_dir.resolve())


def _write(made: Path, files: list[PackedFile], state: Build, config: VLLMConfig) -> None:
    for file in files:
        path = made / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(file.source, bytes):
            path.write_bytes(file.source)
        elif _is_made(file.source, state):
            shutil.copyfile(file.source, path)
        else:
            path.symlink_to(file.source.resolve())
    facts = facts_of(config.engine, state)
    digest = sha256((made / ENGINE_CONFIG).read_bytes()).hexdigest()
    manifest = Manifest(**facts.model_dump(), config_digest=digest, files=())
    (made / MANIFEST).write_bytes(manifest.to_bytes())
