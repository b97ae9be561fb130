"""A strict reader of tar streams.

`tarfile` decodes the headers, but its own loop takes a damaged header for the end of the archive, does not
notice that a truncated one lacks its end mark, and reads extended headers of any length into memory.
"""

from __future__ import annotations

import re
import tarfile
from typing import TYPE_CHECKING, Protocol

from shared.errors import EngineArchiveMalformed, EngineArchiveTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ENTRIES = 65_536
_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(_BLOCK)
_CHUNK = 1 << 20
_MAX_EXTENSION = 1 << 20
_MAX_EXTENSIONS = 128 << 20  # all together
_MAX_END = 1 << 20  # GNU tar fills the last record with zeros; its records have at most this many bytes
_SIZE = re.compile(r"[0-9]{1,18}")
_PAX_RECORD = re.compile(rb"(\d{1,7}) ([^=]+)=")
_PAX_KEYS = frozenset({b"path", b"linkpath", b"size"})  # others say nothing about what is unpacked
_SPARSE = "it holds a sparse file"
_NOT_TAR = {
    b"BZh": "it is compressed with bzip2, and only gzip and Zstandard are read",
    b"\xfd7zXZ": "it is compressed with xz, and only gzip and Zstandard are read",
    b"version https://git-lfs": "it is a pointer of Git LFS, not the file itself",
}


class Readable(Protocol):
    """A binary stream; it need not be seekable."""

    def read(self, size: int, /) -> bytes | memoryview:
        """Up to `size` bytes, valid until the next call; none at the end."""


class TarStream:
    """The entries of a tar, front to back. Anything wrong with its form raises EngineArchiveMalformed."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._entries = 0
        self._extensions = 0  # bytes
        self._contents = 0  # of the current entry, not read yet
        self._padding = 0

    def next(self) -> tarfile.TarInfo | None:
        """The next entry, with its full name; None after the last one, once the stream has ended too.

        Raises EngineArchiveTooLarge for too many entries, EngineArchiveMalformed for what is not a tar, or
        has too many headers.
        """
        for _ in self.contents():
            pass
        self._exactly(self._padding)
        self._padding = 0
        extensions: dict[str, str] = {}
        while (entry := self._header()) is not None:
            self._entries += 1
            if self._entries > MAX_ENTRIES:
                raise EngineArchiveTooLarge(limit=f"{MAX_ENTRIES} entries")
            if entry.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
                extensions |= _pax_records(self._extension(entry))
            elif entry.type == tarfile.GNUTYPE_LONGNAME:
                extensions["path"] = _text(self._extension(entry).split(b"\0")[0])
            elif entry.type == tarfile.GNUTYPE_LONGLINK:
                extensions["linkpath"] = _text(self._extension(entry).split(b"\0")[0])
            elif entry.type == tarfile.XGLTYPE:
                self._extension(entry)  # comments of the program that wrote it
            else:
                return self._extended(entry, extensions)
        if extensions:
            raise EngineArchiveMalformed(reason="it ends after the first part of a header")
        return None

    def contents(self) -> Iterator[bytes | memoryview]:
        """What is left of the contents of the current entry, in pieces."""
        while self._contents:
            chunk = self._read(min(self._contents, _CHUNK))
            if not chunk:
                raise EngineArchiveMalformed(reason="it ends in the middle of a file")
            self._contents -= len(chunk)
            yield chunk

    def _header(self) -> tarfile.TarInfo | None:
        block = self._exactly(_BLOCK)
        if block == _ZEROS:
            self._end()
            return None
        try:
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            reason = f"a header in it is damaged ({error})" if self._entries else "it is not a tar"
            raise EngineArchiveMalformed(reason=reason) from None

    def _extended(self, entry: tarfile.TarInfo, extensions: dict[str, str]) -> tarfile.TarInfo:
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise EngineArchiveMalformed(reason=_SPARSE)
        entry.name = extensions.get("path", entry.name)
        if entry.isdir():
            entry.name = entry.name.rstrip("/")
        entry.linkname = extensions.get("linkpath", entry.linkname)
        size = extensions.get("size", str(entry.size))
        if not _SIZE.fullmatch(size):
            raise EngineArchiveMalformed(reason=f"{entry.name!r} in it has the size {size!r}")
        # Only files have contents; some writers give links the size of what they point to.
        entry.size = int(size) if entry.isreg() else 0
        self._contents = entry.size
        self._padding = -entry.size % _BLOCK
        return entry

    def _extension(self, entry: tarfile.TarInfo) -> bytes:
        if not 0 <= entry.size <= _MAX_EXTENSION:
            raise EngineArchiveMalformed(reason=f"a header in it has {entry.size} bytes")
        self._extensions += entry.size
        if self._extensions > _MAX_EXTENSIONS:
            raise EngineArchiveMalformed(reason=f"its headers have more than {_MAX_EXTENSIONS} bytes")
        body = self._exactly(entry.size)
        self._exactly(-entry.size % _BLOCK)
        return body

    def _end(self) -> None:
        """After the first of the two zero blocks that end a tar: nothing but zeros may follow."""
        if self._exactly(_BLOCK) != _ZEROS:
            raise EngineArchiveMalformed(reason="it has a gap")
        filled = 0
        while chunk := self._read(_CHUNK):
            filled += len(chunk)
            if filled > _MAX_END or bytes(chunk).strip(b"\0"):
                raise EngineArchiveMalformed(reason="something follows its end")

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            chunk = self._read(size - len(parts))
            if not chunk:
                break
            parts += chunk
        if not self._entries:
            self._check_beginning(bytes(parts))
        if len(parts) < size:
            beginning = "it is not a tar, or cut short" if parts else "it is empty"
            raise EngineArchiveMalformed(reason="it is cut short" if self._entries else beginning)
        return bytes(parts)

    def _read(self, size: int) -> bytes | memoryview:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise EngineArchiveMalformed(reason=error.strerror or error) from error

    def _check_beginning(self, block: bytes) -> None:
        for magic, reason in _NOT_TAR.items():
            if block.startswith(magic):
                raise EngineArchiveMalformed(reason=reason)


def _pax_records(body: bytes) -> dict[str, str]:
    r"""Those of the records `<length> <key>=<value>\n` of a pax header that matter here (POSIX.1-2001, pax,
    "Extended Header"). An entry may have any number of headers, so that all together could fill the memory.
    """
    records = {}
    at = 0
    while at < len(body):
        found = _PAX_RECORD.match(body, at)
        end = at + int(found[1]) if found else 0
        if not found or not found.end() < end <= len(body) or body[end - 1 : end] != b"\n":
            raise EngineArchiveMalformed(reason="an extended header in it is damaged")
        if found[2].startswith(b"GNU.sparse"):
            raise EngineArchiveMalformed(reason=_SPARSE)
        if found[2] in _PAX_KEYS:
            records[_text(found[2])] = _text(body[found.end() : end - 1])
        at = end
    return records


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
