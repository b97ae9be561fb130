"""A model that is published as a plain tar of its directory."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

from shared.artifact import extract_archive, sweep
from shared.errors import (
    CogTritonError,
    DownloadFailed,
    EngineArchiveTooLarge,
    EngineArchiveUnsafe,
    ModelTarUnusable,
    NotEnoughSpace,
)
from shared.http import Unreachable, download
from shared.secrets import public_address
from shared.sizes import readable

if TYPE_CHECKING:
    from pathlib import Path

    from shared.artifact import Manifest
    from shared.progress import StepProgress

_MAX_BYTES = 1 << 40


def fetch_model_tar(url: str, destination: Path, disk: Path, progress: StepProgress) -> None:
    """Unpack the tar at `url`, whose top level has the model's config.json, into the new `destination`.

    `disk` is a folder on the same disk that stays, for messages.

    Raises DownloadFailed, ModelTarUnusable and NotEnoughSpace, and OSError when the disk fills up; then
    nothing is left at `destination`.
    """

    def check(manifest: Manifest | None) -> None:
        if manifest is not None:
            reason = "it is an engine.tar, not a model"
            raise ModelTarUnusable(model=public_address(url), reason=reason)

    try:
        with download(url, progress) as body:
            sweep(destination.parent)
            _check_space(body.size or 0, disk)
            extract_archive(body, destination, check=check, max_bytes=_MAX_BYTES)
    except (ModelTarUnusable, NotEnoughSpace):
        raise
    except CogTritonError as error:
        if destination.is_dir():  # another process has unpacked it meanwhile
            return
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ENOSPC:
            raise error.__cause__ from None
        reason = f"it cannot be unpacked ({_problem(error)})"
        raise ModelTarUnusable(model=public_address(url), reason=reason) from None
    except Unreachable as error:
        raise DownloadFailed(model=public_address(url), reason=error.reason) from None


def _problem(error: CogTritonError) -> str:
    """What is wrong with the tar: the error's own message is about an engine archive."""
    details = error.details
    if isinstance(error, EngineArchiveTooLarge):
        return f"it unpacks to more than {details['limit']}"
    if isinstance(error, EngineArchiveUnsafe):
        return f"{details['member']!r} {details['reason']}"
    return str(details.get("reason") or "it is an engine.tar")


def _check_space(size: int, disk: Path) -> None:
    free = shutil.disk_usage(disk).free
    if size > free:
        reason = f"the model's tar takes {readable(size)}, but {disk} has {readable(free)} free"
        raise NotEnoughSpace(reason=reason, place=disk)
