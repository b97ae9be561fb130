"""Headers of x86-64 ELF shared libraries.

Format: System V ABI, chapters 4 and 5; the numbers are those of <elf.h>.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .refused import Refused

if TYPE_CHECKING:
    from .source import Source

HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SEGMENT = struct.Struct("<IIQQQQQQ")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = 24
RELATIVE = 8

PAGE = 4096

PT_LOAD = 1
PT_INTERP = 3
PT_PHDR = 6
PF_W = 2

SHT_PROGBITS = 1
SHT_SYMTAB = 2
SHT_RELA = 4
SHT_NOBITS = 8
SHT_REL = 9
SHT_DYNSYM = 11
SHT_GROUP = 17
SHT_SYMTAB_SHNDX = 18
SHT_RELR = 19
SHF_ALLOC = 2
SHF_COMPRESSED = 0x800

MAGIC = b"\x7fELF"
_CLASS = b"\x02\x01\x01"  # 64 bits, little-endian, version 1
_ET_DYN = 3
_EM_X86_64 = 62


@dataclass(frozen=True)
class Segment:
    """A program header of a 64-bit ELF file: offsets and sizes in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int

    @property
    def end(self) -> int:
        """In the file."""
        return self.offset + self.file_size

    @property
    def address_end(self) -> int:
        return self.address + self.memory_size

    def packed(self) -> bytes:
        return SEGMENT.pack(
            self.type,
            self.flags,
            self.offset,
            self.address,
            self.physical,
            self.file_size,
            self.memory_size,
            self.alignment,
        )


@dataclass(frozen=True)
class Section:
    """A section header of a 64-bit ELF file: offsets and sizes in bytes."""

    name: str
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    @property
    def is_loaded(self) -> bool:
        return bool(self.flags & SHF_ALLOC)

    @property
    def file_size(self) -> int:
        return 0 if self.type == SHT_NOBITS else self.size

    @property
    def end(self) -> int:
        """In the file."""
        return self.offset + self.file_size

    def packed(self) -> bytes:
        return SECTION.pack(
            self.name_offset,
            self.type,
            self.flags,
            self.address,
            self.offset,
            self.size,
            self.link,
            self.info,
            self.alignment,
            self.entry_size,
        )


def loads(segments: list[Segment]) -> list[Segment]:
    """Segments that take bytes from the file, in its order."""
    found = [segment for segment in segments if segment.type == PT_LOAD and segment.file_size]
    return sorted(found, key=lambda segment: segment.offset)


@dataclass(frozen=True)
class Elf:
    """The headers of one library, checked against each other and against the size of the file."""

    header: tuple[int | bytes, ...]
    segments: list[Segment]
    sections: list[Section]
    names_index: int
    segments_offset: int
    sections_offset: int

    @property
    def tables(self) -> list[tuple[int, int, str]]:
        """Where in the file the headers are: start, end, what."""
        segments_end = self.segments_offset + SEGMENT.size * len(self.segments)
        sections_end = self.sections_offset + SECTION.size * len(self.sections)
        return [
            (0, HEADER.size, "the ELF header"),
            (self.segments_offset, segments_end, "the program headers"),
            (self.sections_offset, sections_end, "the section headers"),
        ]

    @property
    def loads(self) -> list[Segment]:
        return loads(self.segments)

    def named(self, name: str) -> Section | None:
        return next((section for section in self.sections if section.name == name), None)

    def holder(self, address: int) -> Segment | None:
        """The loaded segment with this address."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address_end:
                return segment
        return None

    def header_with(
        self, *, segments_offset: int, segments: int, sections_offset: int, sections: int
    ) -> bytes:
        fields = list(self.header)
        fields[5], fields[10] = segments_offset, segments
        fields[6], fields[12] = sections_offset, sections
        return HEADER.pack(*fields)


def parse(source: Source) -> Elf:
    """The headers of a library. Raises Refused when they cannot be handled, or disagree."""
    if source.size < HEADER.size:
        raise Refused("not an ELF file for x86-64")
    header = HEADER.unpack(source.read(0, HEADER.size))
    identity, kind, machine, _, _, segments_at, sections_at, _, size, *table = header
    segment_size, segment_count, section_size, section_count, names_index = table
    if not identity.startswith(MAGIC + _CLASS) or machine != _EM_X86_64:
        raise Refused("not an ELF file for x86-64")
    if kind != _ET_DYN:
        raise Refused("not a shared library")
    if (size, segment_size) != (HEADER.size, SEGMENT.size) or section_size not in {0, SECTION.size}:
        raise Refused("headers of an unknown size")
    if segment_count in {0, 0xFFFF}:
        raise Refused("no program headers, or too many for their count")
    if section_count and not names_index < section_count:
        raise Refused("no table of section names")
    packed = source.read(segments_at, segment_count * SEGMENT.size)
    segments = [Segment(*fields) for fields in SEGMENT.iter_unpack(packed)]
    sections = _sections(source, sections_at, section_count, names_index)
    elf = Elf(header, segments, sections, names_index, segments_at, sections_at)
    _check(elf, source)
    return elf


def _sections(source: Source, offset: int, count: int, names_index: int) -> list[Section]:
    rows = list(SECTION.iter_unpack(source.read(offset, count * SECTION.size)))
    if not rows:
        return []
    names = source.read(*rows[names_index][4:6])
    sections = []
    for row in rows:
        end = names.find(b"\0", row[0])
        if row[0] > len(names) or end < 0:
            raise Refused("a section without a name")
        sections.append(Section(names[row[0] : end].decode(errors="replace"), *row))
    return sections


def _check(elf: Elf, source: Source) -> None:
    loads = elf.loads
    if not loads or loads[0].offset or loads[0].file_size < HEADER.size:
        raise Refused("no segment holds the ELF header")
    for load, following in zip(loads, [*loads[1:], None], strict=True):
        if load.end > source.size:
            raise Refused("a segment reaches past the end of the file")
        if load.file_size > load.memory_size:
            raise Refused("a segment has more bytes in the file than in memory")
        is_power_of_two = load.alignment & (load.alignment - 1) == 0
        if not is_power_of_two or (load.offset - load.address) % max(load.alignment, PAGE):
            raise Refused("a segment that no loader can map")
        if following and following.offset < load.end:
            raise Refused("segments overlap in the file")
    by_address = sorted(loads, key=lambda load: load.address)
    if any(one.address_end > other.address for one, other in pairwise(by_address)):
        raise Refused("segments overlap in memory")
    if any(section.type and section.file_size and section.end > source.size for section in elf.sections):
        raise Refused("a section reaches past the end of the file")
    if any(section.link >= len(elf.sections) for section in elf.sections):
        raise Refused("a section is linked to one that does not exist")
