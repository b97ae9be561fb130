"""Write engine.tar: deterministically, each file read once and written once, complete or not at all."""

from __future__ import annotations

import errno
import hashlib
import shutil
import tarfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import PurePosixPath
from stat import S_ISREG
from typing import TYPE_CHECKING, BinaryIO

from shared.errors import NotEnoughSpace, PackageFailed
from shared.file_system import filled
from shared.sizes import readable

from .manifest import CONFIG, MANIFEST, EngineFacts, FileEntry, Manifest, name_problem
from .partial import appearing_file, sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_CHUNK = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)
_UNKNOWN = "0" * 64


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A file to pack: its name in the archive, and its contents or where they are."""

    name: str
    source: Path | bytes

    def size(self) -> int:
        """Bytes, as of now."""
        if isinstance(self.source, bytes):
            return len(self.source)
        with _naming(self.name):
            found = self.source.stat()
            if not S_ISREG(found.st_mode):
                raise OSError("not a file")
            return found.st_size

    def chunks(self) -> Iterator[bytes]:
        """The contents."""
        if isinstance(self.source, bytes):
            yield self.source
            return
        with _naming(self.name), self.source.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk


def write_archive(
    output: Path,
    facts: EngineFacts,
    files: Iterable[PackedFile],
    progress: Callable[[int], None] = lambda _so_far: None,
) -> Manifest:
    """Pack `files` in the order of their names, behind a manifest of them; `output` appears when it is
    complete.

    `progress` gets the number of bytes packed so far. Raises NotEnoughSpace when the disk is full, and
    PackageFailed when the archive cannot be written, a name is not allowed in it, or a file changes its size
    meanwhile.
    """
    packed = 0

    def advance(count: int) -> None:
        nonlocal packed
        packed += count
        progress(packed)

    try:
        ordered = sorted(files, key=lambda file: file.name)
        _check_names([file.name for file in ordered])
        sizes = [file.size() for file in ordered]
        sweep(output.parent, escape(output.name))
        free = _room(output, sum(sizes))
        with appearing_file(output) as archive:
            # The manifest needs the digests, which are known last: zeros hold its place.
            place = _manifest(facts, ordered, sizes, [_UNKNOWN] * len(ordered)).to_bytes()
            archive.write(header(MANIFEST, len(place)))
            start = archive.tell()
            archive.write(place + _padding(len(place)))
            digests = []
            for file, size in zip(ordered, sizes, strict=True):
                archive.write(header(file.name, size))
                digests.append(_copy(file, size, archive, advance))
                archive.write(_padding(size))
            archive.write(_END)
            manifest = _manifest(facts, ordered, sizes, digests)
            archive.seek(start)
            archive.write(manifest.to_bytes())
            return manifest
    except OSError as error:
        if error.errno == errno.ENOSPC:
            folder = output.parent.absolute()
            reason = f"the engine archive {filled(folder, free)}"
            raise NotEnoughSpace(reason=reason, place=folder) from error
        raise PackageFailed(path=output, reason=error.strerror or error) from error


def header(name: str, size: int) -> bytes:
    """The tar header of a file, without anything that differs between two builds."""
    entry = tarfile.TarInfo(name)  # its defaults: mode 0644, and zero for mtime, uid and gid
    entry.size = size
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8")


def _room(output: Path, size: int) -> int:
    """The free bytes where `output` will be. Raises NotEnoughSpace when they are fewer than `size`."""
    place = output.parent.absolute()
    free = shutil.disk_usage(place).free
    if free < size:
        reason = f"the engine archive needs {readable(size)}, and {place} has {readable(free)} free"
        raise NotEnoughSpace(reason=reason, place=place)
    return free


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _check_names(names: list[str]) -> None:
    """Refuse what the reader would refuse."""
    directories = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    for name, count in Counter([MANIFEST, *names]).items():
        problem = name_problem(name)
        if count > 1:
            problem = "is in it twice"
        elif name in directories:
            problem = "is both a file and a directory"
        if problem:
            raise OSError(f"{name!r} {problem}")
    if CONFIG not in names:
        raise OSError(f"{CONFIG} is missing")


def _manifest(facts: EngineFacts, files: list[PackedFile], sizes: list[int], digests: list[str]) -> Manifest:
    entries = tuple(
        FileEntry(name=file.name, size=size, sha256=digest)
        for file, size, digest in zip(files, sizes, digests, strict=True)
    )
    return Manifest(**facts.model_dump(), config_digest=digests[_index(files)], files=entries)


def _index(files: list[PackedFile]) -> int:
    return next(index for index, file in enumerate(files) if file.name == CONFIG)


def _copy(file: PackedFile, size: int, archive: BinaryIO, advance: Callable[[int], None]) -> str:
    """Append the contents of `file` to the archive; return their SHA-256."""
    digest = hashlib.sha256()
    done = 0
    for chunk in file.chunks():
        done += len(chunk)
        if done > size:
            break
        digest.update(chunk)
        archive.write(chunk)
        advance(len(chunk))
    if done != size:
        raise OSError(f"{file.name} changed while it was being packed")
    return digest.hexdigest()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which file it was that could not be read, by its name in the archive."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{name}: {error.strerror or error}") from error
