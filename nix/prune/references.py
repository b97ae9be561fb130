"""What points at containers of device code: needed to move them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from .elf import RELATIVE, RELOCATION, SHT_DYNSYM, SHT_RELA, SYMBOL
from .refused import Refused

if TYPE_CHECKING:
    from .elf import Elf, Section
    from .source import Source

_ADDRESS = struct.Struct("<Q")
_ADDEND_AT = 16
# Holds one record for each container that CUDA's runtime learns about; its second half is the address.
_WRAPPERS = ".nvFatBinSegment"


class References:
    """Container address -> where it is in the file: a relocation's addend, and the word it relocates."""

    def __init__(self, source: Source, elf: Elf, section: Section) -> None:
        """Raises Refused when anything in the library but the wrappers points into the section."""
        self.places: dict[int, tuple[int, int]] = {}
        self._source = source
        wrappers = elf.named(_WRAPPERS)
        end = section.address + section.size
        for table in elf.sections:
            if not table.is_loaded:
                continue
            if table.type == SHT_DYNSYM:
                self._check_symbols(table, section)
            if table.type != SHT_RELA:
                continue
            words = memoryview(source.read(table.offset, table.size // RELOCATION * RELOCATION)).cast("Q")
            for number, address in enumerate(words[2::3]):
                if section.address <= address < end:
                    where, info = words[3 * number], words[3 * number + 1]
                    inside = wrappers and wrappers.address <= where < wrappers.address + wrappers.size
                    if info != RELATIVE or not inside or address in self.places:
                        raise Refused("what points at device code is not understood")
                    slot = wrappers.offset + where - wrappers.address if wrappers else 0
                    self.places[address] = (table.offset + RELOCATION * number + _ADDEND_AT, slot)

    def _check_symbols(self, table: Section, section: Section) -> None:
        for fields in SYMBOL.iter_unpack(
            self._source.read(table.offset, table.size // SYMBOL.size * SYMBOL.size)
        ):
            if section.address <= fields[4] < section.address + section.size:
                raise Refused("a symbol that other libraries can use is in device code")

    def patches(self, address: int, moved: int) -> list[tuple[int, bytes]]:
        """What to write, and where in the file, when the container at `address` moves."""
        addend, slot = self.places[address]
        found = [(addend, _ADDRESS.pack(moved))]
        # The loader ignores the old value there; tools that read the file may not.
        if self._source.read(slot, _ADDRESS.size) == _ADDRESS.pack(address):
            found.append((slot, _ADDRESS.pack(moved)))
        return found
