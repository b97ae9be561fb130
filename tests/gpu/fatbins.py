"""Device code and memory of a library, read without the pruner's code: what the proof compares with."""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = (".nv_fatbin", "__nv_relfatbin")
STORES = (".cask_resource", ".ldata")
_CONTAINER = re.compile(re.escape(bytes.fromhex("50ed55ba01001000")))
_FRAME = re.compile(re.escape(bytes.fromhex("28b52ffd")))
_CUDA, _OLD_ABI = 190, 51
_RELA, _ALLOC = 4, 2
_SPECIFIC, _FAMILY = 0x100000, 0x200000


@dataclass(frozen=True)
class Code:
    """One entry of a container."""

    kind: int
    architecture: int
    suffix: str
    content: memoryview

    @property
    def is_ptx(self) -> bool:
        return self.kind == 1

    @property
    def target(self) -> str:
        return f"sm_{self.architecture}{self.suffix}"


class Image:
    """A library, mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        (segments_at,) = struct.unpack_from("<Q", self.data, 32)
        (count,) = struct.unpack_from("<H", self.data, 56)
        rows = [struct.unpack_from("<IIQQQQQQ", self.data, segments_at + 56 * row) for row in range(count)]
        self.headers = [(0, 64), (segments_at, segments_at + 56 * count)]
        self.loads = [row for row in rows if row[0] == 1]
        self.others = Counter((row[0], row[1], row[3], row[6]) for row in rows if row[0] != 1)
        self.relocations: list[tuple[int, int]] = []
        self.stores: list[tuple[int, int]] = []
        self.sections = self._sections()

    def _sections(self) -> list[tuple[str, int, int]]:
        """(name, address, size) of the device code."""
        (table,) = struct.unpack_from("<Q", self.data, 40)
        count, names = struct.unpack_from("<HH", self.data, 60)
        rows = [struct.unpack_from("<IIQQQQIIQQ", self.data, table + 64 * row) for row in range(count)]
        found = []
        for row in rows:
            start = rows[names][4] + row[0]
            name = bytes(self.data[start : start + 40]).split(b"\0")[0].decode(errors="replace")
            if name in NAMES:
                found.append((name, row[3], row[5]))
            elif name in STORES:
                self.stores.append((row[3], row[5]))
            elif row[1] == _RELA and row[2] & _ALLOC:
                self.relocations.append((row[3], row[5]))
        return sorted(found, key=lambda section: section[1])

    def pieces(self) -> list[tuple[int, int, int | None]]:
        """Memory as (address, end, place in the file or None for zeros), in order."""
        found: list[tuple[int, int, int | None]] = []
        for _, _, offset, address, _, size, memory, _ in self.loads:
            if size:
                found.append((address, address + size, offset))
            if memory > size:
                found.append((address + size, address + memory, None))
        return sorted(found)

    def header_addresses(self) -> list[tuple[int, int]]:
        """Where the ELF header and the program headers are in memory."""
        found = []
        for start, end in self.headers:
            for _, _, offset, address, _, size, _, _ in self.loads:
                if offset <= start < offset + size:
                    found.append((address + start - offset, address + end - offset))
        return found

    def read(self, address: int, end: int) -> bytes | memoryview:
        """Memory [address, end); zeros where the file gives none."""
        parts = []
        for start, stop, offset in self.pieces():
            low, high = max(start, address), min(stop, end)
            if low < high:
                part = (
                    bytes(high - low)
                    if offset is None
                    else self.data[offset + low - start : offset + high - start]
                )
                parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def references(self) -> dict[int, int]:
        """Where in memory addresses of device code are, and which: in relocations, and what they relocate."""
        found = {}
        for table, size in self.relocations:
            words = memoryview(bytes(self.read(table, table + size))).cast("Q")
            for number, value in enumerate(words[2::3]):
                if any(address <= value < address + size for _, address, size in self.sections):
                    found[table + 24 * number + 16] = value
                    found[words[3 * number]] = value
        return found

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, address + 8), "little")

    def containers(self) -> dict[int, list[Code]]:
        """By address, in order. Raises ValueError when anything but zeros is between them."""
        found = {}
        for name, address, size in self.sections:
            content = memoryview(self.read(address, address + size))
            at = 0
            while at < size:
                if content[at] == 0:
                    if any(content[at : at + 4]):
                        raise ValueError(f"{name}: no container at {at:#x}")
                    at += 4 - at % 4
                    continue
                magic, _, _, length = struct.unpack_from("<IHHQ", content, at)
                if magic != 0xBA55ED50:
                    raise ValueError(f"{name}: no container at {at:#x}")
                found[address + at] = list(_entries(content[at + 16 : at + 16 + length]))
                at += 16 + length
        return found

    def unusable(self, sm: int) -> list[tuple[int, int]]:
        """Where in stores there is code that is not for `sm`: (address, end), in order."""
        found = []
        for address, size in self.stores:
            content = memoryview(self.read(address, address + size))
            containers = 0
            for start, codes in _stored(content):
                kept = {id(code) for code in expected(codes, sm)}
                at = address + start + 16
                for code in codes:
                    (header,) = struct.unpack_from("<I", code.content, 4)
                    if id(code) not in kept:
                        found.append((at + header, at + len(code.content)))
                    at += len(code.content)
                containers = at - address
            found += [
                (address + start, address + end)
                for start, end, architecture in _cubins(content, containers)
                if not _runs(Code(2, architecture, "", content[:0]), sm, exact=architecture == sm)
            ]
        return sorted(found)


def _stored(content: memoryview) -> Iterator[tuple[int, list[Code]]]:
    """Containers anywhere: where they are, and what is in them."""
    end = 0
    for match in _CONTAINER.finditer(content):
        start = match.start()
        (length,) = struct.unpack_from("<Q", content, start + 8)
        if start >= end and start + 16 + length <= len(content):
            end = start + 16 + length
            yield start, list(_entries(content[start + 16 : end]))


def _cubins(content: memoryview, at: int) -> Iterator[tuple[int, int, int]]:
    """Cubins that are zstd frames, behind `at`: start, end, and the architecture in their ELF header."""
    for match in _FRAME.finditer(content, at):
        start = match.start()
        if start < at:
            continue
        frame = zstd.ZstdDecompressor()
        try:
            cubin = frame.decompress(content[start : start + (1 << 23)])
        except zstd.ZstdError:
            continue
        if frame.eof and cubin.startswith(b"\x7fELF") and cubin[18] == _CUDA:
            at = min(start + (1 << 23), len(content)) - len(frame.unused_data)
            (flags,) = struct.unpack_from("<I", cubin, 48)
            yield start, at, flags & 0xFF if cubin[7] == _OLD_ABI else flags >> 8 & 0xFF


def _entries(content: memoryview):
    at = 0
    while at < len(content):
        kind, _, header, payload = struct.unpack_from("<HHIQ", content, at)
        (architecture,) = struct.unpack_from("<I", content, at + 28)
        (flags,) = struct.unpack_from("<Q", content, at + 40)
        suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
        yield Code(kind, architecture, suffix, content[at : at + header + payload])
        at += header + payload


def expected(container: list[Code], sm: int) -> list[Code]:
    """What must be left for `sm`: from the same rule as the pruner's, expressed differently."""
    if any(code.kind not in {1, 2} for code in container):
        return container
    for exact in (True, False):
        cubins = [code for code in container if not code.is_ptx and _runs(code, sm, exact=exact)]
        if cubins:
            best = max(code.architecture for code in cubins)
            return [code for code in cubins if code.architecture == best]
    ptx = [code for code in container if code.is_ptx and _compiles(code, sm)]
    best = max((code.architecture for code in ptx), default=0)
    return [code for code in ptx if code.architecture == best]


def _runs(code: Code, sm: int, *, exact: bool) -> bool:
    if exact:
        return code.architecture == sm
    return code.suffix != "a" and sm // 10 * 10 <= code.architecture < sm


def _compiles(code: Code, sm: int) -> bool:
    if code.suffix == "a":
        return code.architecture == sm
    return (sm // 10 * 10 if code.suffix == "f" else 0) <= code.architecture <= sm
