"""Device code among a library's data, found through an index of the library's own.

Two forms are known; neither can be moved, because only the library knows its index.

- Containers as in `.nv_fatbin`, one for a kernel or a few, in cuFFT, cuBLASLt, cuDNN and cuSPARSELt.
- cuBLASLt's cubins, each one zstd frame (RFC 8878). A record for each kernel says where the frame is:

      record: u32 architecture, u32, u64 address of the frame (relocated), u64, u32 size of the frame,
              u32 size of the cubin

  Read from the library; every cubin that was unpacked is for the architecture in its records.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from . import fatbin
from .elf import RELATIVE, RELOCATION, SHT_PROGBITS, SHT_RELA
from .fatbin import CUBIN, Container, Entry
from .refused import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf import Elf, Section
    from .source import Source

_NAMES = (".cask_resource", ".ldata")

_RECORD = struct.Struct("<IIQQII")
_ADDRESS_AT = 8
_ARCHITECTURES = range(50, 200)
# A frame whose size was known in advance: magic, "one segment, size in 4 bytes", size of the content.
_FRAME = struct.Struct("<IBI")
_FRAME_START = (0xFD2FB528, 0xA0)
_RUN_OF_ONE_BYTE, _RESERVED = 1, 3


def find(elf: Elf) -> list[Section]:
    return [section for section in elf.sections if section.name in _NAMES and section.type == SHT_PROGBITS]


def read(source: Source, elf: Elf) -> Iterator[Container]:
    """The containers in a library's stores, without entries that are blank; a cubin is a container too."""
    for section in find(elf):
        for found in _containers(source, section):
            left = (one for one in found.entries if source.zeros_end(one.code, one.end) < one.end)
            yield Container(found.start, found.end, tuple(left))
        for start, architecture, size in _cubins(source, elf, section):
            end = start + size
            yield Container(start, end, (Entry(CUBIN, architecture, 0, start, start, end),))


def _containers(source: Source, section: Section) -> Iterator[Container]:
    at = section.offset
    while (at := source.find(fatbin.START, at, section.end)) < section.end:
        try:
            # Other bytes that begin like a container do not continue like one.
            found = fatbin.container(source, at, section.end)
        except Refused:
            at += len(fatbin.START)
        else:
            yield found
            at = found.end


def _cubins(source: Source, elf: Elf, section: Section) -> Iterator[tuple[int, int, int]]:
    """(position, architecture, size) of the frames whose records agree with each other and with the frame."""
    records: dict[int, set[tuple[int, int, int]]] = {}
    for table in elf.sections:
        if table.type != SHT_RELA or not table.is_loaded:
            continue
        words = memoryview(source.read(table.offset, table.size // RELOCATION * RELOCATION)).cast("Q")
        for number, address in enumerate(words[2::3]):
            start = section.offset + address - section.address
            if section.offset <= start <= section.end - _FRAME.size and _is_frame(source, start):
                record = _record(source, elf, words[3 * number], words[3 * number + 1])
                records.setdefault(start, set()).add(record)
    for start, found in sorted(records.items()):
        (architecture, size, cubin), *others = found
        if others or architecture not in _ARCHITECTURES:
            continue
        if (size, cubin) == _frame_sizes(source, start, section.end):
            yield start, architecture, size


def _record(source: Source, elf: Elf, where: int, kind: int) -> tuple[int, int, int]:
    """(architecture, size of the frame, size of the cubin) of the record relocated at `where`; else zeros."""
    load = elf.holder(where)
    at = load.offset + where - load.address - _ADDRESS_AT if load else 0
    if load is None or kind != RELATIVE or not load.offset <= at <= load.end - _RECORD.size:
        return 0, 0, 0
    architecture, _, _, _, size, cubin = _RECORD.unpack(source.read(at, _RECORD.size))
    return architecture, size, cubin


def _is_frame(source: Source, start: int) -> bool:
    return _FRAME.unpack(source.read(start, _FRAME.size))[:2] == _FRAME_START


def _frame_sizes(source: Source, start: int, end: int) -> tuple[int, int]:
    """Size of a frame and of its content; zeros when it does not end before `end`."""
    content = _FRAME.unpack(source.read(start, _FRAME.size))[2]
    at = start + _FRAME.size
    while at + 3 <= end:
        header = int.from_bytes(source.read(at, 3), "little")
        kind, size = header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == _RUN_OF_ONE_BYTE else size)
        if kind == _RESERVED or at > end:
            break
        if header & 1:
            return at - start, content
    return 0, 0
