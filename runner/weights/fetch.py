"""Find or fetch an engine: from a URL, an engine.tar (also compressed), or a directory."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from shared.artifact import EngineDirectory, extract_archive
from shared.errors import WeightsNotFound, WeightsNotStored, WeightsUnreachable

from .download import Arriving, download, public_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from shared.artifact import Check, Manifest

    from .download import Progress


_CHUNK = 1 << 20


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
    URL, or the unchanged file, is found there again. `check` gets the manifest (None for an engine of the
    time before manifests) and raises to refuse it. `progress` gets the bytes read so far, and their number
    where it is known.

    Raises E4200 (not reachable), E4201 (nothing there), E4203 (cannot be stored), and the E41xx of
    `extract_archive`.
    """
    scheme, separator, rest = source.partition("://")
    if separator and scheme in ("http", "https"):
        return _unpacked(source, download(source, progress), cache_dir, check, max_bytes)
    if separator and scheme != "file":
        reason = f"{scheme}:// is not one of http://, https:// and file://"
        raise WeightsUnreachable(source=public_url(source), reason=reason)
    path = Path(unquote(rest.removeprefix("localhost"))) if separator else Path(source)
    if path.is_dir():
        directory = EngineDirectory(path)
        check(directory.manifest)
        return directory
    try:
        found = path.stat()
    except OSError as error:
        raise WeightsNotFound(source=path) from error
    key = f"{path.resolve()}\0{found.st_size}\0{found.st_mtime_ns}"
    return _unpacked(key, _opened(path, found.st_size, progress), cache_dir, check, max_bytes)


def _unpacked(
    key: str, archive: AbstractContextManager[Arriving], cache_dir: Path, check: Check, max_bytes: int
) -> EngineDirectory:
    """The engine that is kept under `key`; the archive is opened only when there is none yet."""
    destination = cache_dir / sha256(key.encode()).hexdigest()
    if not destination.is_dir():
        try:
            with archive as stream:

                def check_all(manifest: Manifest | None) -> None:
                    check(manifest)
                    # Compressed ones need more than this.
                    _check_room(destination, manifest.total_size if manifest else stream.size or 0)

                extract_archive(stream, destination, check=check_all, max_bytes=max_bytes)
            return EngineDirectory(destination)
        except WeightsNotStored:
            # Directories appear here only whole: another process has unpacked the same engine meanwhile.
            if not destination.is_dir():
                raise
    directory = EngineDirectory(destination)
    check(directory.manifest)
    return directory


def _check_room(destination: Path, needed: int) -> None:
    """Raises E4203 unless so many bytes are free there."""
    place = next(parent for parent in destination.absolute().parents if parent.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        reason = f"it takes {needed} bytes, and {free} are free there"
        raise WeightsNotStored(path=destination, reason=reason)


@contextmanager
def _opened(path: Path, size: int, progress: Progress) -> Iterator[Arriving]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise WeightsUnreachable(source=path, reason=error.strerror) from error
    with file:
        yield Arriving(iter(lambda: file.read(_CHUNK), b""), size, progress)
