"""`cog-triton add-compiled`: an engine.tar that includes what vLLM has compiled for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from builder.output import check_output
from runner.engines.vllm.compile_cache import MADE_FOR, NOT_SHIPPED, SHIPPED, made_for, model_of
from runner.settings import Settings
from runner.weights import fetch_weights
from shared.artifact import EngineFacts, PackedFile, write_archive
from shared.errors import NothingCompiled
from shared.secrets import public_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.artifact import Manifest


def add_compiled(engine: str, output: Path, cache: Path | None = None) -> list[str]:
    """Write `output`: the files of `engine`, an engine.tar, and everything in `cache` that is for it.

    `cache` defaults to COMPILE_CACHE. Returns what it was compiled on, one line each. Raises
    OutputRefused, NothingCompiled, NotEnoughSpace, PackageFailed, and what `fetch_weights` raises.
    """
    check_output(output)
    settings = Settings.from_environment(os.environ)
    directory = fetch_weights(
        engine, settings.weights_cache, check=lambda _: None, max_bytes=settings.max_engine_bytes
    )
    cache = cache or settings.compile_cache
    try:
        found = list(_compiled(cache, directory.path, directory.manifest))
    except OSError as error:  # such as too long a name
        fix = (
            f"That folder cannot be read ({error.strerror}): give the right one with --cache or COMPILE_CACHE"
        )
        raise NothingCompiled(cache=cache, engine=public_address(engine), fix=fix) from None
    if not found or directory.manifest is None:
        fix = "Serve this engine.tar once on the GPU, with COMPILE_CACHE set to that folder, and try again"
        if directory.manifest is None:
            fix = (
                "The archive does not begin with its manifest.json: it was packed anew, or is not for vLLM;"
                " only vLLM compiles at its start"
            )
        elif directory.manifest.engine != "vllm":
            fix = f'The engine is of the kind "{directory.manifest.engine}"; only vLLM compiles at its start'
        raise NothingCompiled(cache=cache, engine=public_address(engine), fix=fix)
    names = [file.name for file in directory.manifest.files if not file.name.startswith(f"{SHIPPED}/")]
    files = [PackedFile(name, directory.path / name) for name in names]
    for folder in found:
        for path in folder.rglob("*"):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in NOT_SHIPPED:
                files.append(PackedFile(f"{SHIPPED}/{folder.name}/{inside.as_posix()}", path))
    facts = EngineFacts(**{name: getattr(directory.manifest, name) for name in EngineFacts.model_fields})
    write_archive(output, facts, files)
    return [_told(made_for(folder)) for folder in found]


def _compiled(cache: Path, engine_dir: Path, manifest: Manifest | None) -> Iterator[Path]:
    if manifest is None or manifest.engine != "vllm":
        return
    model = model_of(engine_dir)
    for folder in sorted(path.parent for path in cache.glob(f"*/{MADE_FOR}")):
        if made_for(folder).get("model") == model:
            yield folder


def _told(facts: dict[str, object]) -> str:
    gpus = facts.get("gpus")
    names = [str(gpu[0]) for gpu in gpus] if isinstance(gpus, list) else []
    return f"{', '.join(names)}, driver {facts.get('driver')}" if names else "a CPU"
