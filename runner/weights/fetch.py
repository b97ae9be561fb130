"""Find or fetch an engine: from a URL, an engine.tar (even compressed), or a directory."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from shared.artifact import EngineDirectory, extract_archive, is_damaged, partial_of, sweep
from shared.errors import WeightsNotFound, WeightsNotStored, WeightsUnreachable
from shared.http import Unreachable, download
from shared.logs import get_logger
from shared.secrets import public_address
from shared.sizes import readable
from shared.source import NotThere, found, local_path, opened_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from shared.artifact import Check, Manifest
    from shared.http import Arriving, Progress

log = get_logger()


def fetch_weights(
    source: str,
    cache_dir: Path,
    *,
    check: Check,
    max_bytes: int,
    progress: Progress = lambda _arrived, _total: None,
) -> EngineDirectory:
    """The unpacked engine of `source`: an http(s) or file URL, or the path of an engine.tar or a directory.

    A directory is used in place. Everything else is unpacked below `cache_dir` as it arrives, once: the same
    URL, or the unchanged file, is found there again (unless it is damaged). `check` gets the manifest (None
    for an engine from before manifests) and raises to refuse it. `progress` gets the bytes read so far, and
    their total if known.

    Raises WeightsUnreachable (not reachable), WeightsNotFound (nothing there), WeightsNotStored (cannot be
    stored), and what `extract_archive` raises.
    """
    try:
        path = local_path(source)
        if path is None:
            return _unpacked(source, download(source, progress), cache_dir, check, max_bytes)
        status = found(path)
        if stat.S_ISDIR(status.st_mode):
            return _engine_in(path, check)
        key = f"{path.resolve()}\0{status.st_size}\0{status.st_mtime_ns}"
        return _unpacked(key, opened_file(path, progress), cache_dir, check, max_bytes)
    except NotThere:
        raise WeightsNotFound(source=public_address(source)) from None
    except Unreachable as error:
        raise WeightsUnreachable(source=public_address(source), reason=error.reason) from None


def _unpacked(
    key: str, archive: AbstractContextManager[Arriving], cache_dir: Path, check: Check, max_bytes: int
) -> EngineDirectory:
    """The engine that is kept under `key`; the archive is opened only if there is none yet."""
    destination = cache_dir / sha256(key.encode()).hexdigest()
    try:
        sweep(cache_dir)  # also when nothing is fetched; and before it is measured what is free
        is_there = destination.is_dir()
    except OSError as problem:
        raise WeightsNotStored(path=destination, reason=problem.strerror) from None
    if not is_there or is_damaged(destination):
        try:
            with archive as stream:
                _remove_damaged(destination)

                def check_all(manifest: Manifest | None) -> None:
                    check(manifest)
                    # Compressed ones need more than this.
                    _check_room(destination, manifest.total_size if manifest else stream.size or 0)

                extract_archive(stream, destination, check=check_all, max_bytes=max_bytes)
            return EngineDirectory(destination)
        except WeightsNotStored:
            # Directories appear here only when complete: another process has unpacked the same engine
            # meanwhile.
            if not os.path.isdir(destination) or is_damaged(destination):  # noqa: PTH112 - Path raises for too long a name
                raise
    return _engine_in(destination, check)


def _remove_damaged(folder: Path) -> None:
    """Nothing, if it is gone or whole: another process may be doing the same. Raises WeightsNotStored."""
    aside = partial_of(folder)
    try:
        with _alone(folder.parent):  # it may be whole again after it was found damaged
            if folder.is_dir() and is_damaged(folder):
                log.warning("an engine in the cache is damaged: it is unpacked again", folder=str(folder))
                folder.rename(aside)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise WeightsNotStored(path=folder, reason=problem.strerror) from None
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _alone(cache_dir: Path) -> Iterator[None]:
    """One process at a time, where the file system has locks."""
    descriptor = os.open(cache_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _engine_in(path: Path, check: Check) -> EngineDirectory:
    """The engine that was unpacked there, no matter by whom."""
    directory = EngineDirectory(path)
    check(directory.manifest)
    directory.refuse_unreadable()
    return directory


def _check_room(destination: Path, needed: int) -> None:
    """Raises WeightsNotStored unless that many bytes are free there."""
    place = next(parent for parent in destination.absolute().parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        reason = f"it takes {readable(needed)}, and the disk there has {readable(free)} free"
        raise WeightsNotStored(path=destination, reason=reason)
