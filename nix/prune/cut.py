"""Leave runs of zeros out of the file: the loader creates them, at the same addresses.

A segment that ends in zeros needs no bytes in the file for them (its size in memory is larger than in the
file), so a segment with a hole becomes two: one that ends in zeros, and one that begins after them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .elf import PAGE, PF_W, PT_INTERP, PT_LOAD, PT_PHDR
from .refused import Refused

if TYPE_CHECKING:
    from .device import Device
    from .elf import Elf, Section, Segment

# Each hole costs the process two mappings; small ones are not worth it.
_SMALLEST = 16 * PAGE


def holes(elf: Elf, code: Device) -> list[tuple[int, int]]:
    """Whole pages of removed code: positions in the old file. Raises Refused when the file cannot be cut."""
    if any(segment.type in {PT_INTERP, PT_PHDR} for segment in elf.segments):
        raise Refused("its program headers are part of the program")
    if any(section.is_loaded and section.alignment > PAGE for section in elf.sections):
        raise Refused("a section needs more than the alignment of a page")
    found = []
    for section in code.sections:
        holder = elf.holder(section.address)
        if holder is None or holder.flags & PF_W:
            raise Refused("device code is in a writable segment")
        at = section.offset
        for copy in [*code.copies, None]:
            if copy and not section.offset <= copy.to < section.end:
                continue
            end = copy.to if copy else section.end
            start, stop = at + -at % PAGE, end - end % PAGE
            if stop - start >= _SMALLEST:
                found.append((start, stop))
            at = copy.to + copy.size if copy else at
    if not found:
        raise Refused("nothing to cut")
    return sorted(found)


def split_segments(segments: list[Segment], holes: list[tuple[int, int]]) -> list[Segment]:
    """Segments without the holes, at their old places in the file."""
    found = []
    for segment in segments:
        rest = segment
        for start, end in holes:
            if segment.type == PT_LOAD and segment.offset <= start < segment.end:
                gone = end - rest.offset
                found.append(replace(rest, file_size=start - rest.offset, memory_size=gone))
                rest = replace(
                    rest,
                    offset=end,
                    address=rest.address + gone,
                    physical=rest.physical + gone,
                    file_size=rest.file_size - gone,
                    memory_size=rest.memory_size - gone,
                )
        found.append(rest)
    return [replace(one, alignment=PAGE) if one.type == PT_LOAD else one for one in found]


def split_section(section: Section, holes: list[tuple[int, int]]) -> list[Section]:
    """The parts of a section between the holes."""
    found = []
    rest = section
    for start, end in holes:
        if section.offset <= start < section.end:
            gone = end - rest.offset
            found.append(replace(rest, size=start - rest.offset))
            rest = replace(rest, address=rest.address + gone, offset=end, size=rest.size - gone)
    return [part for part in [*found, rest] if part.size]
