"""A tar of a directory; its bytes depend only on names, contents, links and executable bits."""

from __future__ import annotations

import tarfile
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# Not 0: some programs take that for "unknown".
_MTIME = 1
_CHUNK = 1 << 20


class Attributes(TypedDict, total=False):
    """How a path differs from the rule (owner root; 0755 or 0644)."""

    mode: int
    uid: int
    gid: int


def write_tar(root: Path, attributes: Mapping[str, Attributes], output: Callable[[bytes], None]) -> int:
    """Write the tar of everything below `root` to `output`, entries sorted; return the bytes of all files."""
    total = written = 0

    def emit(data: bytes) -> None:
        nonlocal written
        written += len(data)
        output(data)

    for path in _sorted_paths(root):
        name = path.relative_to(root).as_posix()
        entry = tarfile.TarInfo(name)
        entry.mtime = _MTIME
        own = attributes.get(name, {})
        entry.uid, entry.gid = own.get("uid", 0), own.get("gid", 0)
        if path.is_symlink():
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, path.readlink().as_posix(), 0o777
        elif path.is_dir():
            entry.type, entry.mode = tarfile.DIRTYPE, own.get("mode", 0o755)
        else:
            status = path.stat()
            entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o111 else 0o644
        # GNU, not USTAR: sizes of 8 GiB and names of any length.
        emit(entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        if entry.isreg():
            with path.open("rb") as file:
                while data := file.read(_CHUNK):
                    emit(data)
            emit(bytes(-entry.size % tarfile.BLOCKSIZE))
            total += entry.size
    emit(bytes(2 * tarfile.BLOCKSIZE))
    emit(bytes(-written % tarfile.RECORDSIZE))
    return total


def _sorted_paths(root: Path) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _sorted_paths(path)
