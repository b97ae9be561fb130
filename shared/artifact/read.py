"""Unpack engine.tar from any stream: nothing is trusted, and the directory appears whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from shared.errors import (
    EngineArchiveCorrupt,
    EngineArchiveMalformed,
    EngineArchiveTooLarge,
    EngineArchiveUnsafe,
    WeightsNotStored,
)

from .compression import decompressed
from .manifest import CONFIG, MANIFEST, Manifest, name_problem
from .store import Store, appearing, sync
from .tar import MAX_ENTRIES, TarStream

if TYPE_CHECKING:
    from tarfile import TarInfo

    from .manifest import Check
    from .tar import Readable

_MAX_MANIFEST = 16 << 20
_MAX_LINK = 1024  # bytes, as of names


def read_manifest(stream: Readable) -> Manifest | None:
    """The manifest of an archive, from its first bytes; None for an archive from before manifests.

    Raises EngineArchiveMalformed for what is not an engine archive, EngineArchiveVersion for another format,
    EngineArchiveCorrupt for a manifest that contradicts itself, EngineArchiveTooLarge for too much before it.
    """
    manifest, _, _ = _begin(TarStream(decompressed(stream)))
    return manifest


def extract_archive(stream: Readable, destination: Path, *, check: Check, max_bytes: int) -> Manifest | None:
    """Unpack an archive into `destination`, which must not exist; return its manifest.

    `check` gets the manifest (None for an archive from before manifests) before anything is written, and
    raises to refuse the engine. At most `max_bytes` are written. Raises EngineArchiveMalformed (incomplete,
    or not an archive), EngineArchiveUnsafe (unsafe entry), EngineArchiveVersion (another format),
    EngineArchiveCorrupt (not what its manifest says), EngineArchiveTooLarge (too large), WeightsNotStored
    (cannot be stored), and what `stream` raises; then nothing is left behind.
    """
    archive = TarStream(decompressed(stream))
    manifest, manifest_text, entry = _begin(archive)
    check(manifest)
    if manifest and manifest.total_size > max_bytes:
        raise EngineArchiveTooLarge(limit=f"{max_bytes} bytes")
    try:
        with appearing(destination) as directory, Store() as store:
            unpacking = _Unpacking(archive, directory, store, manifest, max_bytes)
            if manifest:
                store.keep(directory / MANIFEST, [manifest_text])
            while entry := entry or archive.next():
                unpacking.entry(entry)
                entry = None
            unpacking.finish()
    except OSError as error:
        raise WeightsNotStored(path=destination, reason=error.strerror or error) from error
    return manifest


def _begin(archive: TarStream) -> tuple[Manifest | None, bytes, TarInfo | None]:
    """The manifest and its text, or the first entry of an archive without one."""
    first = archive.next()
    if first is None:
        raise EngineArchiveMalformed(reason="it is empty")
    if _name(first) != MANIFEST:
        return None, b"", first
    if first.size > _MAX_MANIFEST:
        raise EngineArchiveMalformed(reason=f"{MANIFEST} in it has {first.size} bytes")
    # Each piece is valid until the next one is asked for.
    text = b"".join(map(bytes, archive.contents()))
    return Manifest.from_bytes(text), text, None


def _name(entry: TarInfo) -> str:
    """`tar -C engine -c .` puts `./` before the names."""
    return entry.name.removeprefix("./")


class _Unpacking:
    """One archive on its way into `directory`, a new one that nobody else uses."""

    def __init__(
        self, archive: TarStream, directory: Path, store: Store, manifest: Manifest | None, max_bytes: int
    ) -> None:
        self._archive = archive
        self._directory = directory
        self._store = store
        self._expected = {file.name: file for file in manifest.files} if manifest else None
        self._bytes_left = max_bytes
        self._limit = max_bytes
        self._files: set[str] = set()
        self._directories: set[str] = set()
        self._links: dict[str, str] = {}

    def entry(self, entry: TarInfo) -> None:
        """Take one entry, or refuse the archive for it."""
        name = _name(entry)
        if entry.isdir() and name in ("", ".") and self._expected is None:
            return
        if problem := name_problem(name) or self._kind_problem(entry):
            raise EngineArchiveUnsafe(member=name, reason=problem)
        if name == MANIFEST or name.startswith(f"{MANIFEST}/"):
            raise EngineArchiveMalformed(reason=f"{MANIFEST} is not the first file in it")
        if entry.isdir():
            self._add_directories(f"{name}/")
            return
        self._add_file(name)
        if entry.isreg():
            self._unpack(name, entry.size)
        elif entry.issym():
            target = entry.linkname
            if not target.isprintable() or not 0 < len(target.encode()) <= _MAX_LINK:
                raise EngineArchiveUnsafe(
                    member=name, reason="is a link to something that is not a file name"
                )
            self._links[name] = target
        else:
            self._link(name, entry.linkname.removeprefix("./"))

    def finish(self) -> None:
        """Check that the archive was complete. Its links are made last, so that nothing is ever
        written through one.
        """
        if self._expected:
            raise EngineArchiveCorrupt(file=next(iter(self._expected)), reason="it is missing")
        if CONFIG not in self._files:
            raise EngineArchiveMalformed(reason=f"it has no {CONFIG}")
        for name, target in self._links.items():
            (self._directory / name).symlink_to(target)
        inside = self._directory.resolve()
        for name in self._links:
            if not _leads_below(inside, self._directory / name):
                raise EngineArchiveUnsafe(
                    member=name, reason="is a link that leads to nothing in the archive"
                )
        if not (self._directory / CONFIG).is_file():
            raise EngineArchiveMalformed(reason=f"its {CONFIG} is a link to a directory")
        self._store.wait()
        for directory in ("", *sorted(self._directories, reverse=True)):
            sync(self._directory / directory)

    def _kind_problem(self, entry: TarInfo) -> str | None:
        if entry.isreg():
            return None
        if entry.isdir() or entry.issym() or entry.islnk():
            return None if self._expected is None else "is not a file"
        return "is neither a file nor a directory"

    def _add_file(self, name: str) -> None:
        if name in self._files or name in self._directories:
            raise EngineArchiveUnsafe(member=name, reason="is in it twice")
        self._add_directories(name)
        self._files.add(name)

    def _add_directories(self, name: str) -> None:
        missing = []
        # Where one is known, so are those above it.
        while (name := name.rpartition("/")[0]) and name not in self._directories:
            if name in self._files:
                raise EngineArchiveUnsafe(member=name, reason="is both a file and a directory")
            missing.append(name)
        # One name may ask for hundreds.
        if len(self._directories) + len(missing) > MAX_ENTRIES:
            raise EngineArchiveTooLarge(limit=f"{MAX_ENTRIES} directories")
        for directory in reversed(missing):
            (self._directory / directory).mkdir()
            self._directories.add(directory)

    def _unpack(self, name: str, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise EngineArchiveTooLarge(limit=f"{self._limit} bytes")
        if self._expected is None:
            self._store.keep(self._directory / name, self._archive.contents())
            return
        file = self._expected.pop(name, None)
        if file is None:
            raise EngineArchiveCorrupt(file=name, reason="it is not listed there")
        if file.size != size:
            raise EngineArchiveCorrupt(file=name, reason=f"it has {size} bytes instead of {file.size}")
        if self._store.keep(self._directory / name, self._archive.contents()) != file.sha256:
            raise EngineArchiveCorrupt(file=name, reason="its SHA-256 differs")

    def _link(self, name: str, target: str) -> None:
        if target == name or target in self._links or target not in self._files:
            raise EngineArchiveUnsafe(
                member=name, reason="links to something that is not in the archive before it"
            )
        os.link(self._directory / target, self._directory / name)


def _leads_below(directory: Path, link: Path) -> bool:
    """Whether the link leads to something below `directory`, a resolved path. The kernel answers: links that
    lead over each other take `Path.resolve` hours.
    """
    try:
        descriptor = os.open(link, os.O_PATH)
    except OSError:
        return False
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(directory)
    finally:
        os.close(descriptor)
