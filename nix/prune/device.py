"""What of a library's device code stays for one GPU architecture, and where it goes."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import fatbin
from .elf import PT_LOAD, SHF_COMPRESSED, SHT_PROGBITS, SHT_RELA, SHT_RELR
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
    """Device code of a library: before (`containers`), and after pruning (`copies`, `patches`)."""

    sections: list[Section]
    containers: list[Container] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    patches: list[tuple[int, bytes]] = field(default_factory=list)
    before: Counter[str] = field(default_factory=Counter)
    after: Counter[str] = field(default_factory=Counter)
    left_whole: int = 0

    @property
    def is_changed(self) -> bool:
        return bool(self.patches)


def find(elf: Elf) -> list[Section]:
    return [section for section in elf.sections if section.name in _NAMES and section.size]


def read(source: Source, elf: Elf) -> Iterator[Container]:
    """All containers of a library. Raises Refused where device code is not as it is known to be."""
    for section in find(elf):
        yield from fatbin.containers(source, section.offset, section.end)


def select(source: Source, elf: Elf, sm: int, *, pack: bool = False) -> Device:
    """What stays for `sm`: at the front of its container, whose size is reduced; the rest is zeros.

    With `pack`, containers move to the front of their section too, and what points at them is changed; one
    that nothing points at stays. Raises Refused when device code, or what is around it, is not understood.
    """
    device = Device(find(elf))
    for section in device.sections:
        _check_alone(source, elf, section)
        references = References(source, elf, section) if pack else None
        at = section.offset
        for container in fatbin.containers(source, section.offset, section.end):
            kept = container.kept_for(sm)
            device.containers.append(container)
            device.before.update(_bytes_by_target(container.entries))
            device.after.update(_bytes_by_target(kept))
            device.left_whole += not container.is_understood()
            address = container.start - section.offset + section.address
            moves = references is not None and address in references.places
            to = at + -at % _ALIGNMENT if moves else container.start
            if references and to != container.start:
                device.patches += references.patches(address, to - section.offset + section.address)
            at = _compact(device, container, kept, to)
    return device


def _bytes_by_target(entries: tuple[fatbin.Entry, ...]) -> Counter[str]:
    count: Counter[str] = Counter()
    for entry in entries:
        count[entry.target] += entry.size
    return count


def _compact(device: Device, container: Container, kept: tuple[fatbin.Entry, ...], to: int) -> int:
    """Put a container with only these entries at `to`; returns where it ends."""
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


def _check_alone(source: Source, elf: Elf, section: Section) -> None:
    """Nothing but device code may be in the section, in the file or in memory."""
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
    for other in elf.sections:
        if other.type == SHT_RELR:
            raise Refused(f"relocations in {other.name} are not understood")
        if other.type == SHT_RELA and other.is_loaded and _relocates(source, other, section):
            raise Refused(f"relocations inside {section.name}")


def _others(elf: Elf, section: Section) -> Iterator[tuple[int, int, str]]:
    yield from elf.tables
    for other in elf.sections:
        if other is not section and other.type and other.file_size:
            yield other.offset, other.end, other.name
    for segment in elf.segments:
        if segment.type not in {PT_LOAD, 0} and segment.file_size:
            yield segment.offset, segment.end, "another segment"


def _relocates(source: Source, relocations: Section, section: Section) -> bool:
    words = memoryview(source.read(relocations.offset, relocations.size // 24 * 24)).cast("Q")
    end = section.address + section.size
    return any(section.address - 8 < address < end for address in words[::3])
