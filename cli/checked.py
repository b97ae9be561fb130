"""What `cog-triton check` looks at: a config, or whatever else `cog-triton serve` takes."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from builder.check.report import Report, check, unreadable
from builder.check.source import check_source
from builder.sources.config import shown
from builder.sources.vllm_repository import MODEL_JSON, is_vllm_repository, read_repository
from cli.engines import CONFIGS, OF_THE_HUB, is_checkpoint
from cli.inspect import manifest_of
from shared.artifact import MANIFEST
from shared.errors import CogTritonError, WeightsUnreachable
from shared.http import Unreachable
from shared.source import ARCHIVES, found, local_path
from shared.unreadable import reason_of


def report_on(source: str, gpus: int | None) -> Report:
    """The report on what is at `source`. Raises nothing: everything is in the report."""
    try:
        return _report(source, gpus)
    except CogTritonError as error:
        return unreadable(error, shown(source))


def _report(source: str, gpus: int | None) -> Report:
    try:
        path = local_path(source)
        is_folder = path is not None and stat.S_ISDIR(found(path).st_mode)
    except Unreachable:
        if OF_THE_HUB.fullmatch(source) and not source.endswith((*ARCHIVES, *CONFIGS)):
            model, _, revision = source.partition("@")
            return _of_config({"model": model, "revision": revision or None}, source, gpus)
        path, is_folder = None, False
    if path is not None and is_folder:
        try:
            return _of_folder(path.resolve(), source, gpus)
        except OSError as error:
            raise WeightsUnreachable(source=error.filename or source, reason=reason_of(error)) from None
    if path is not None and path.name == MODEL_JSON and is_vllm_repository(path.absolute().parent.parent):
        return _of_repository(path.absolute().parent.parent, source, gpus)
    if source.partition("?")[0].endswith(ARCHIVES):
        return _of_engine(source)
    return check_source(source, gpus)


def _of_folder(path: Path, source: str, gpus: int | None) -> Report:
    if (path / MANIFEST).is_file():
        return _of_engine(source)
    if is_vllm_repository(path):
        return _of_repository(path, source, gpus)
    if is_checkpoint(path):
        return _of_config({"model": str(path)}, source, gpus)
    return check_source(source, gpus)  # which says that it is a folder


def _of_engine(source: str) -> Report:
    """The beginning of an engine.tar is read, or the manifest of one that is unpacked."""
    manifest_of(source)
    return Report(shown(source), ())


def _of_repository(path: Path, source: str, gpus: int | None) -> Report:
    repository = read_repository(path)
    config = repository.config.model_dump(mode="json", exclude_unset=True)
    return _of_config(config, source, gpus, repository.folder)


def _of_config(config: dict[str, Any], source: str, gpus: int | None, folder: Path | None = None) -> Report:
    """The report on a config of vLLM that nobody has written: it has one line."""
    return check(json.dumps({"engine": "vllm", **config}), shown(source), gpus, folder or Path.cwd())
