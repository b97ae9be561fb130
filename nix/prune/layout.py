"""Where the bytes of a library go in its new file.

What is loaded keeps its address, and its place in the file unless sections before it are left out. What is
not loaded (section names, notes) follows, then the section headers. Sections that are left out keep an empty
header, so that no index changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .cut import split_section, split_segments
from .elf import (
    PAGE,
    SECTION,
    SEGMENT,
    SHT_GROUP,
    SHT_PROGBITS,
    SHT_REL,
    SHT_RELA,
    SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
    Section,
    loads,
)
from .refused import Refused

if TYPE_CHECKING:
    from .elf import Elf, Segment

_NOTHING = Section("", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
_DEBUG = (".debug_", ".zdebug_", ".gdb_index", ".stab")
_OF_SYMBOLS = {SHT_REL, SHT_RELA, SHT_GROUP, SHT_SYMTAB_SHNDX}


@dataclass(frozen=True)
class Extent:
    """Bytes [start, end) of the old file, and where they go in the new one."""

    start: int
    end: int
    to: int


@dataclass
class Layout:
    """The new file: copies of old bytes, and new ones (position in the new file, bytes)."""

    extents: list[Extent]
    written: list[tuple[int, bytes]]
    size: int

    def new_offset(self, old: int) -> int:
        """Raises Refused when the byte at `old` is in no segment."""
        for extent in self.extents:
            if extent.start <= old < extent.end:
                return extent.to + old - extent.start
        raise Refused("a header points outside of all segments")


def debug_sections(elf: Elf) -> set[int]:
    """Indices of the sections that only debuggers and linkers read."""
    dropped = set()
    for index, section in enumerate(elf.sections):
        if not section.is_loaded and (section.name.startswith(_DEBUG) or section.type == SHT_SYMTAB):
            dropped.add(index)
            if section.type == SHT_SYMTAB:
                dropped.add(section.link)
    for index, section in enumerate(elf.sections):
        if not section.is_loaded and section.type in _OF_SYMBOLS and section.link in dropped:
            dropped.add(index)
    kept = {elf.names_index} | {index for index, section in enumerate(elf.sections) if section.is_loaded}
    return {index for index in dropped - kept if elf.sections[index].size}


def lay_out(
    elf: Elf, dropped: set[int], marker: tuple[str, bytes] | None, names: bytes, holes: list[tuple[int, int]]
) -> Layout:
    """The file without the `dropped` sections and the `holes`, and with a section `marker` if there is one.

    `holes` are (start, end) in the old file, `marker` is (name, content),
    `names` is the content of the table of section names. Raises Refused when a header cannot be moved.
    """
    old_segments = split_segments(elf.segments, holes) if holes else elf.segments
    layout = Layout(*_loaded(old_segments))
    segments = [_moved(segment, layout) for segment in old_segments]
    sections = [_NOTHING if index in dropped else section for index, section in enumerate(elf.sections)]
    for index, section in enumerate(sections[:]):
        if section.is_loaded and section.file_size:
            sections[index], *more = split_section(section, holes)
            sections += more
    for index, section in enumerate(sections):
        if section.is_loaded:
            sections[index] = _moved_section(section, elf, layout)
        elif index not in {0, elf.names_index}:
            sections[index] = _appended(layout, section)
    if marker:
        name, content = marker
        fields = (name, len(names), SHT_PROGBITS, 0, 0, 0, len(content), 0, 0, 1, 0)
        sections.append(_placed(layout, Section(*fields), content))
        names += name.encode() + b"\0"
    if sections:
        table = replace(sections[elf.names_index], size=len(names))
        sections[elf.names_index] = _placed(layout, table, names)
    sections_offset = layout.size + -layout.size % 8 if sections else 0
    layout.written.append((sections_offset, b"".join(section.packed() for section in sections)))
    layout.size = sections_offset + len(sections) * SECTION.size
    if holes:
        # There are more than before: they do not fit in their old place.
        segments_offset = layout.size
        layout.size += SEGMENT.size * len(segments)
    else:
        end = elf.segments_offset + SEGMENT.size * len(segments)
        segments_offset = _new_range(layout, elf.segments_offset, end)
    layout.written.append((segments_offset, b"".join(segment.packed() for segment in segments)))
    header = elf.header_with(
        segments_offset=segments_offset,
        segments=len(segments),
        sections_offset=sections_offset,
        sections=len(sections),
    )
    layout.written.append((0, header))
    return layout


def _loaded(segments: list[Segment]) -> tuple[list[Extent], list[tuple[int, bytes]], int]:
    extents = []
    at = 0
    for load in loads(segments):
        # The smallest position that may be mapped at the segment's address.
        at += (load.offset - at) % max(load.alignment, PAGE)
        extents.append(Extent(load.offset, load.end, at))
        at += load.file_size
    return extents, [], at


def _moved(segment: Segment, layout: Layout) -> Segment:
    if not segment.file_size:
        return segment
    return replace(segment, offset=_new_range(layout, segment.offset, segment.end))


def _moved_section(section: Section, elf: Elf, layout: Layout) -> Section:
    if section.file_size:
        return replace(section, offset=_new_range(layout, section.offset, section.end))
    holder = elf.holder(section.address)
    if holder is None or not holder.file_size:
        return section
    return replace(section, offset=layout.new_offset(holder.offset) + section.address - holder.address)


def _new_range(layout: Layout, start: int, end: int) -> int:
    first = layout.new_offset(start)
    if layout.new_offset(end - 1) - first != end - 1 - start:
        raise Refused("a header spans segments")
    return first


def _appended(layout: Layout, section: Section) -> Section:
    """A section that is not loaded, after everything else."""
    if not section.file_size:
        return section
    layout.size += -layout.size % max(min(section.alignment, PAGE), 1)
    layout.extents.append(Extent(section.offset, section.end, layout.size))
    moved = replace(section, offset=layout.size)
    layout.size += section.file_size
    return moved


def _placed(layout: Layout, section: Section, content: bytes) -> Section:
    layout.written.append((layout.size, content))
    moved = replace(section, offset=layout.size, size=len(content))
    layout.size += len(content)
    return moved
