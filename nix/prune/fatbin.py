"""Containers of CUDA device code ("fatbins") in a section of a library.

Format: read from NVIDIA's and PyTorch's libraries, and compared with cuobjdump's lists. All little-endian.

    container: u32 magic, u16 version, u16 header size, u64 size of the entries
    entry:     u16 kind, u16 0x101, u32 header size, u64 payload size, u32 compressed size, u32 offset of
               options, u16 minor, u16 major, u32 architecture, u32 offset and u32 length of the name,
               u64 flags, u64 0, u64 size when uncompressed; then the rest of the header, then the payload

Nothing in an entry is an address, so entries can be moved within their container.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .refused import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source import Source

CONTAINER = struct.Struct("<IHHQ")
ENTRY = struct.Struct("<HHIQIIIIIIQQQ")

MAGIC = 0xBA55ED50
_VERSION = 1
# The beginning of every container.
START = CONTAINER.pack(MAGIC, _VERSION, CONTAINER.size, 0)[:8]
_ENTRY_VERSION = 0x101
_MAX_ENTRY_HEADER = 4096

_ARCH_SPECIFIC = 0x100000
_FAMILY_SPECIFIC = 0x200000
# The flags that were found: 64 bits, Linux, LZ4, zstd, the two above, and one of unknown meaning that CUDA 13
# sets on cubins.
_KNOWN_FLAGS = 0x1 | 0x10 | 0x2000 | 0x8000 | _ARCH_SPECIFIC | _FAMILY_SPECIFIC | 0x1000000

PTX = 1
CUBIN = 2


@dataclass(frozen=True)
class Entry:
    """One piece of code for one architecture; positions are in the file, `code` the one after the header."""

    kind: int
    architecture: int
    flags: int
    start: int
    code: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def target(self) -> str:
        """As in the compiler's option: sm_90a, compute_80."""
        prefix = {CUBIN: "sm_", PTX: "compute_"}.get(self.kind, f"kind{self.kind}_")
        suffix = "a" if self.flags & _ARCH_SPECIFIC else "f" if self.flags & _FAMILY_SPECIFIC else ""
        return f"{prefix}{self.architecture}{suffix}"

    def is_understood(self) -> bool:
        return self.kind in {PTX, CUBIN} and not self.flags & ~_KNOWN_FLAGS

    def runs_on(self, sm: int) -> bool:
        """Cubins run on their own major version, from their minor version on; PTX on every later one."""
        if self.flags & _ARCH_SPECIFIC:
            return self.architecture == sm
        same_major = self.architecture // 10 == sm // 10
        return self.architecture <= sm and (
            same_major or (self.kind == PTX and not self.flags & _FAMILY_SPECIFIC)
        )


@dataclass(frozen=True)
class Container:
    """A fatbin: the same device code for several targets, in bytes `start` to `end` of the file."""

    start: int
    end: int
    entries: tuple[Entry, ...]

    def is_understood(self) -> bool:
        return all(entry.is_understood() for entry in self.entries)

    def kept_for(self, sm: int) -> tuple[Entry, ...]:
        """The entries that the driver may choose on this GPU: all of the best cubins, else all of the best
        PTX.

        A container with an entry that is not understood keeps everything.
        """
        if not self.is_understood():
            return self.entries
        for kind in (CUBIN, PTX):
            usable = [entry for entry in self.entries if entry.kind == kind and entry.runs_on(sm)]
            if usable:
                best = max(entry.architecture for entry in usable)
                return tuple(entry for entry in usable if entry.architecture == best)
        return ()


def containers(source: Source, start: int, end: int) -> Iterator[Container]:
    """The containers between two positions of the file, in order.

    Raises Refused when anything but zeros lies between them, or when entries do not fill a container exactly.
    """
    at = start
    while (at := source.zeros_end(at, end)) < end:
        # The magic number cannot begin with zeros; containers begin at multiples of 8.
        found = container(source, at, end)
        yield found
        at = found.end


def container(source: Source, at: int, end: int) -> Container:
    """The container at a position. Raises Refused when there is none that ends before `end`."""
    magic, version, header, size = CONTAINER.unpack(source.read(at, CONTAINER.size))
    if magic != MAGIC:
        raise Refused("device code outside of a container")
    if (version, header) != (_VERSION, CONTAINER.size):
        raise Refused(f"a container of version {version} with a header of {header} bytes")
    if size > end - at - CONTAINER.size:
        raise Refused("a container reaches past the end of its section")
    body = at + CONTAINER.size
    return Container(at, body + size, tuple(_entries(source, body, body + size)))


def _entries(source: Source, at: int, end: int) -> Iterator[Entry]:
    while at < end:
        if end - at < ENTRY.size:
            raise Refused("entries do not fill their container")
        fields = ENTRY.unpack(source.read(at, ENTRY.size))
        kind, version, header, payload, _, _, _, architecture, _, _, flags, _, _ = fields
        if version != _ENTRY_VERSION or not ENTRY.size <= header <= _MAX_ENTRY_HEADER:
            raise Refused(f"an entry of version {version:#x} with a header of {header} bytes")
        if payload > end - at - header:
            raise Refused("an entry reaches past the end of its container")
        yield Entry(kind, architecture, flags, at, at + header, at + header + payload)
        at += header + payload
