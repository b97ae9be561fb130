"""Which of a library's device code stays for one GPU architecture, and where it goes."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from . import fatbin, stores
from .elf import PT_LOAD, RELOCATION, SHF_COMPRESSED, SHT_PROGBITS, SHT_RELA, SHT_RELR
from .references import References
from .refused import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .elf import Elf, Section
    from .fatbin import Container
    from .source import Source

# Of linked code, and of objects that can still be linked with other device code.
_NAMES = (".nv_fatbin", "__nv_relfatbin")
_SIZE = struct.Struct("<Q")
_SIZE_AT = 8
_ALIGNMENT = 8


@dataclass(frozen=True)
class Copy:
    """Bytes of the old file, and the place that they would have in its layout."""

    to: int
    start: int
    size: int


@dataclass
class Device:
    """Device code of a library: before (`containers`), and after pruning.

    The `sections` then consist of `copies` and zeros, with `patches`; `blanks` are zeros in stores.
    """

    sections: list[Section]
    containers: list[Container] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    patches: list[tuple[int, bytes]] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    left_whole: int = 0

    @property
    def is_changed(self) -> bool:
        return bool(self.patches or self.blanks)

    def add(self, container: Container, kept: tuple[fatbin.Entry, ...]) -> None:
        self.containers.append(container)
        self.before.update(_bytes_by_target(container.entries))
        self.after.update(_bytes_by_target(kept))
        self.left_whole += not container.is_understood()


def find(elf: Elf) -> list[Section]:
    return [section for section in elf.sections if section.name in _NAMES and section.size]


def read(source: Source, elf: Elf) -> Iterator[Container]:
    """All containers of a library. Raises Refused when device code does not have a known form."""
    for section in find(elf):
        yield from fatbin.containers(source, section.offset, section.end)
    yield from stores.read(source, elf)


def select(source: Source, elf: Elf, sm: int, *, pack: bool = False) -> Device:
    """What stays for `sm`: at the front of its container, whose size is reduced; the rest is zeros.

    In stores, everything stays in place, and only code becomes zeros, not its headers. With `pack`,
    containers also move to the front of their section, and what points at them is changed; one that nothing
    points at stays. Raises Refused when device code, or what is around it, is not understood.
    """
    device = Device(find(elf))
    for section in device.sections:
        _check_alone(elf, section)
        references = References(source, elf, section) if pack else None
        at = section.offset
        for container in fatbin.containers(source, section.offset, section.end):
            kept = container.kept_for(sm)
            device.add(container, kept)
            address = container.start - section.offset + section.address
            moves = references is not None and address in references.places
            to = at + -at % _ALIGNMENT if moves else container.start
            if references and to != container.start:
                device.patches += references.patches(address, to - section.offset + section.address)
            at = _compact(device, container, kept, to)
    for container in stores.read(source, elf):
        kept = container.kept_for(sm)
        device.add(container, kept)
        device.blanks += [(entry.code, entry.end) for entry in container.entries if entry not in kept]
    device.blanks.sort()
    if device.blanks:
        for section in stores.find(elf):
            _check_alone(elf, section)
    _check_unrelocated(source, elf, device)
    return device


def _bytes_by_target(entries: tuple[fatbin.Entry, ...]) -> Counter[str]:
    count: Counter[str] = Counter()
    for entry in entries:
        count[entry.target] += entry.size
    return count


def _compact(device: Device, container: Container, kept: tuple[fatbin.Entry, ...], to: int) -> int:
    """Put a container with only these entries at `to`; return where it ends."""
    at = to + fatbin.CONTAINER.size
    _copy(device, to, container.start, fatbin.CONTAINER.size)
    for entry in kept:
        _copy(device, at, entry.start, entry.size)
        at += entry.size
    size = at - to - fatbin.CONTAINER.size
    if size < container.end - container.start - fatbin.CONTAINER.size:
        device.patches.append((to + _SIZE_AT, _SIZE.pack(size)))
    return at


def _copy(device: Device, to: int, start: int, size: int) -> None:
    last = device.copies[-1] if device.copies else None
    if last and (last.to + last.size, last.start + last.size) == (to, start):
        device.copies[-1] = Copy(last.to, last.start, last.size + size)
    else:
        device.copies.append(Copy(to, start, size))


def _check_alone(elf: Elf, section: Section) -> None:
    """Nothing else may be where the section is, in the file or in memory."""
    load = elf.holder(section.address)
    if (
        not section.is_loaded
        or section.type != SHT_PROGBITS
        or section.flags & SHF_COMPRESSED
        or load is None
        or section.offset - load.offset != section.address - load.address
        or section.end > load.end
    ):
        raise Refused(f"{section.name} is not loaded as it is in the file")
    for start, end, what in _others(elf, section):
        if start < section.end and section.offset < end:
            raise Refused(f"{section.name} overlaps {what}")


def _check_unrelocated(source: Source, elf: Elf, device: Device) -> None:
    """The loader must not write into device code."""
    places = [(section.offset, section.end) for section in device.sections] + device.blanks
    if not places:
        return
    ranges = []
    for start, end in places:
        load = next(load for load in elf.loads if load.offset <= start < load.end)
        ranges.append((start - load.offset + load.address, end - load.offset + load.address))
    ranges.sort()
    if any(one[1] > other[0] for one, other in pairwise(ranges)):
        raise Refused("device code overlaps device code")
    starts = [start for start, _ in ranges]
    for table in elf.sections:
        if table.type == SHT_RELR:
            raise Refused(f"relocations in {table.name} are not understood")
        if table.type != SHT_RELA or not table.is_loaded:
            continue
        words = memoryview(source.read(table.offset, table.size // RELOCATION * RELOCATION)).cast("Q")
        for address in words[::3]:
            before = bisect_left(starts, address + 8) - 1
            if before >= 0 and address < ranges[before][1]:
                raise Refused("relocations inside device code")


def _others(elf: Elf, section: Section) -> Iterator[tuple[int, int, str]]:
    yield from elf.tables
    for other in elf.sections:
        if other is not section and other.type and other.file_size:
            yield other.offset, other.end, other.name
    for segment in elf.segments:
        if segment.type not in {PT_LOAD, 0} and segment.file_size:
            yield segment.offset, segment.end, "another segment"
