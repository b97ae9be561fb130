"""Small shared libraries with device code, made without a compiler, and a reader of their memory images.

The reader shares no code with the pruner.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PAGE = 4096
LOAD, DYNAMIC, NOTE = 1, 2, 4
PROGBITS, SYMTAB, STRTAB, RELA, NOBITS = 1, 2, 3, 4, 8
WRITE, ALLOC = 1, 2

A, F = 0x100000, 0x200000
CUBIN, PTX, LTO = 2, 1, 8


def entry(kind: int, architecture: int, size: int = 64, flags: int = 0, fill: int = 0xAB) -> bytes:
    """One piece of device code; `fill` stands for the machine code."""
    header = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64, size, 0, 0, 0, 1, architecture, 0, 0, flags | 0x11, 0, 0
    )
    return header + bytes([fill]) * size


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def cubin(architecture: int, size: int = 3000) -> bytes:
    """A cubin as zstd stores what it cannot compress: one frame, in blocks."""
    elf = struct.pack("<4s14xH28xI", b"\x7fELF", 190, architecture << 8).ljust(size, bytes([architecture]))
    blocks = [elf[at : at + 2000] for at in range(0, size, 2000)]
    headers = [(len(block) << 3 | (block is blocks[-1])).to_bytes(3, "little") for block in blocks]
    frame = struct.pack("<IBI", 0xFD2FB528, 0xA0, size)
    return frame + b"".join(header + block for header, block in zip(headers, blocks, strict=True))


@dataclass
class Section:
    name: str
    content: bytes
    type: int = PROGBITS
    flags: int = 0
    link: int = 0
    align: int = 8
    address: int = 0
    offset: int = 0
    memory: int = 0

    @property
    def size(self) -> int:
        return self.memory or len(self.content)


@dataclass
class Library:
    """Sections in file order: one read-only segment, one writable, and `late` behind debug sections.

    A library that patchelf moved parts of has a loaded segment after sections that are not loaded. A `wrapped`
    one tells CUDA's runtime of its containers, all but the last `unknown`, as linked libraries do. `stored`
    containers lie among other data; `cubins` (architecture that their record names, frame) too.
    """

    containers: list[bytes] = field(default_factory=list)
    debug: bytes = b""
    late: bytes = b""
    relocated: list[int] = field(default_factory=list)
    section: str = ".nv_fatbin"
    wrapped: bool = False
    unknown: int = 0
    stored: list[bytes] = field(default_factory=list)
    cubins: list[tuple[int, bytes]] = field(default_factory=list)

    def build(self) -> bytes:
        places = sections_of(self._build({}))
        return self._build({name: address for name, (address, _, _) in places.items()})

    def _build(self, places: dict[str, int]) -> bytes:
        """With sections at these addresses."""
        known = self.containers[: len(self.containers) - self.unknown] if self.wrapped else []
        addresses, at = [], places.get(self.section, 0)
        for one in known:
            addresses.append(at)
            at += len(one)
        wrappers = b"".join(struct.pack("<IIQQ", 0x466243B1, 1, address, 0) for address in addresses)
        slots = [places.get(".nvFatBinSegment", 0) + 24 * number + 8 for number in range(len(addresses))]
        fatbin = b"".join(self.containers)
        store = b"\x33" * 40 + b"\x44\0\0\0\0\0\0\0".join(self.stored)
        pointers, ldata = self._ldata(places.get(".ldata", 0))
        relocated = [*((address, 0) for address in self.relocated), *zip(slots, addresses, strict=True)]
        relocated += pointers
        rela = b"".join(struct.pack("<QqQ", slot, 8, address) for slot, address in relocated)
        read_only = [
            Section(".rela.dyn", rela, RELA, ALLOC),
            Section(".rodata", bytes(range(200)), flags=ALLOC),
            *([Section(self.section, fatbin, flags=ALLOC)] if fatbin else []),
            *([Section(".cask_resource", store, flags=ALLOC)] if self.stored else []),
            Section(".eh_frame", b"\x11" * 100, flags=ALLOC),
        ]
        writable = [
            *([Section(".nvFatBinSegment", wrappers, flags=ALLOC | WRITE)] if wrappers else []),
            Section(".data", b"\x22" * 300, flags=ALLOC | WRITE),
            *([Section(".ldata", ldata, flags=ALLOC | WRITE)] if ldata else []),
            Section(".bss", b"", NOBITS, ALLOC | WRITE, memory=5000),
        ]
        symbols = 2 + len(read_only) + len(writable)
        unloaded = [Section(".comment", b"made by hand\0", align=1)]
        if self.debug:
            unloaded += [
                Section(".symtab", b"\0" * 24, SYMTAB, link=symbols + 1),
                Section(".strtab", b"\0main\0", STRTAB, align=1),
                Section(".debug_info", self.debug, align=1),
            ]
        late = [Section(".dynstr", self.late, STRTAB, ALLOC)] if self.late else []
        return _assembled(read_only, writable, unloaded, late)

    def _ldata(self, at: int) -> tuple[list[tuple[int, int]], bytes]:
        """Relocations of the records, which come first, and the content."""
        start = at + 32 * len(self.cubins)
        records, frames, pointers = b"", b"", []
        for number, (architecture, frame) in enumerate(self.cubins):
            (size,) = struct.unpack_from("<I", frame, 5)
            address = start + len(frames)
            pointers.append((at + 32 * number + 8, address))
            records += struct.pack("<IIQQII", architecture, 0, address, 0, len(frame), size)
            frames += frame + bytes(-len(frame) % 8)
        return pointers, records + frames


def _assembled(read_only, writable, unloaded, late) -> bytes:
    groups = [(4, read_only), (6, writable), *([(6, late)] if late else [])]
    out = bytearray(64 + 56 * (len(groups) + 1))
    segments = []
    for flags, sections in groups:
        if sections is late:
            _append(out, unloaded)
        if segments:
            out += bytes(-len(out) % PAGE)
        start = len(out) if segments else 0
        address = 0 if not segments else segments[-1][2] + segments[-1][4] + PAGE
        address += (start - address) % PAGE
        _append(out, sections, start, address)
        last = sections[-1]
        segments.append((LOAD, flags, address, len(out) - start, last.address + last.size - address, start))
    if not late:
        _append(out, unloaded)
    ordered = [*read_only, *writable, *unloaded, *late]
    names = b"\0"
    headers = [bytes(64)]
    for section in [*ordered, Section(".shstrtab", b"", STRTAB, align=1)]:
        name = len(names)
        names += section.name.encode() + b"\0"
        if section.name == ".shstrtab":
            section.content, section.offset = names, len(out)
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", name, section.type, section.flags, section.address, section.offset, section.size,
                section.link, 0, section.align, 24 if section.type in {RELA, SYMTAB} else 0,
            )
        )  # fmt: skip
    out += names
    out += bytes(-len(out) % 8)
    table = len(out)
    out += b"".join(headers)
    rows = [*segments, (0x6474E551, 6, 0, 0, 0, 0)]
    out[:64] = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1".ljust(16, b"\0"), 3, 62, 1, 0, 64, table, 0, 64, 56, len(rows), 64,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    for number, (kind, flags, address, size, memory, offset) in enumerate(rows):
        packed = struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, memory, PAGE)
        out[64 + 56 * number : 120 + 56 * number] = packed
    return bytes(out)


def _append(out: bytearray, sections: list[Section], start: int = 0, address: int = 0) -> None:
    for section in sections:
        out += bytes(-len(out) % section.align)
        section.offset = len(out)
        if section.flags & ALLOC:
            section.address = address + section.offset - start
        out += section.content


def sections_of(data: bytes) -> dict[str, tuple[int, int, int]]:
    """Name -> address, offset, size; in a library that may be corrupt."""
    table, count, names_index = (
        struct.unpack_from("<Q", data, 40)[0],
        *struct.unpack_from("<H", data, 60),
        *struct.unpack_from("<H", data, 62),
    )
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * number) for number in range(count)]
    names = data[rows[names_index][4] :]
    found = {}
    for row in rows:
        name = names[row[0] : names.index(b"\0", row[0])].decode(errors="replace")
        found.setdefault(name, (row[3], row[4], row[5]))
    return found


def segments_of(data: bytes) -> list[tuple[int, ...]]:
    """(type, flags, offset, address, physical, file size, memory size, alignment) of each."""
    (table,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    return [struct.unpack_from("<IIQQQQQQ", data, table + 56 * number) for number in range(count)]


def memory_of(data: bytes) -> dict[int, bytes]:
    """Address -> content of every loaded segment, as the dynamic loader would make it."""
    image = {}
    for kind, _, offset, address, _, size, memory, _ in segments_of(data):
        if kind == LOAD:
            image[address] = data[offset : offset + size].ljust(min(memory, 1 << 20), b"\0")
    return image


def device_code_of(data: bytes, name: str = ".nv_fatbin") -> list[list[tuple[int, int, int]]]:
    """(kind, architecture, fill) of the entries of each container."""
    _, at, size = sections_of(data)[name]
    end = at + size
    found = []
    while at < end:
        if data[at : at + 8] == bytes(8):
            at += 8
            continue
        magic, _, _, length = struct.unpack_from("<IHHQ", data, at)
        assert magic == 0xBA55ED50
        at += 16
        stop = at + length
        entries = []
        while at < stop:
            kind, _, header, payload = struct.unpack_from("<HHIQ", data, at)
            (architecture,) = struct.unpack_from("<I", data, at + 28)
            entries.append((kind, architecture, data[at + header]))
            at += header + payload
        found.append(entries)
    return found
