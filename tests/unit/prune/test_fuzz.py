"""Corrupt libraries are refused, or give a file whose memory is the same outside the device code.

`make fuzz-prune` tries 5,000; the seeds are numbers, so a case that failed can be tried alone.
"""

from __future__ import annotations

import os
import random
import re
import struct

from nix.prune import Outcome, prune_library
from tests.unit.prune.libraries import (
    CUBIN,
    LOAD,
    PTX,
    A,
    Library,
    container,
    cubin,
    entry,
    memory_of,
    sections_of,
    segments_of,
)

CASES = int(os.environ.get("PRUNE_FUZZ_CASES", "200"))
_CODE = [
    container(*(entry(CUBIN, sm, 500, fill=sm) for sm in (80, 86, 90)), entry(PTX, 90)),
    container(entry(CUBIN, 80, 5000), entry(CUBIN, 90, 9000, A)),
    container(),
    container(entry(CUBIN, 90, 7000)),
]
CUBINS = [(sm, cubin(sm)) for sm in (80, 90, 100)]
BASES = [
    Library(_CODE).build(),
    Library(_CODE, debug=b"\x77" * 9000).build(),
    Library(_CODE, debug=b"\x77" * 50_000, late=b"\x66" * 99).build(),
    Library(_CODE, section="__nv_relfatbin", relocated=[0x200, 0x10_0000]).build(),
    Library(debug=b"\x77" * 100).build(),
    Library([*_CODE, container(entry(CUBIN, 80, 100_000), entry(CUBIN, 86, 8))], wrapped=True).build(),
    Library(_CODE, stored=_CODE, cubins=CUBINS).build(),
]
_NUMBERS = [
    0,
    1,
    7,
    8,
    16,
    56,
    63,
    64,
    255,
    4095,
    4096,
    4097,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
]


def fields(data: bytes) -> list[int]:
    """Where numbers stand that the pruner reads: all headers, the containers and their entries."""
    places = list(range(16, 64, 2))
    places += range(64, 64 + 56 * len(segments_of(data)), 4)
    table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
    places += range(table, table + 64 * count, 4)
    for name in (".nv_fatbin", "__nv_relfatbin", ".cask_resource", ".ldata"):
        if name in sections_of(data):
            _, offset, size = sections_of(data)[name]
            places += range(offset, offset + size, 4)
            places += 20 * [
                at for at in range(offset, offset + size - 64, 8) if data[at + 2 : at + 4] == b"\x55\xba"
            ]
        if name == ".ldata" and name in sections_of(data):
            places += 20 * [
                *range(offset, offset + 96, 4),
                *(start + 9 for start, _ in stored_code(data)[-3:]),
            ]
    return [at for at in places if at + 8 <= len(data)]


def stored_code(data: bytes) -> list[tuple[int, int]]:
    """Where in the file the code of `STORED` and `CUBINS` is: (start, end)."""
    found = []
    if ".ldata" in sections_of(data):
        _, offset, size = sections_of(data)[".cask_resource"]
        for match in re.finditer(rb"P\xed\x55\xba", data[offset : offset + size]):
            at = offset + match.start() + 16
            (length,) = struct.unpack_from("<Q", data, at - 8)
            end = at + length
            while at < end:
                (payload,) = struct.unpack_from("<Q", data, at + 8)
                found.append((at + 64, at + 64 + payload))
                at += 64 + payload
        found += [(data.index(frame), data.index(frame) + len(frame)) for _, frame in CUBINS]
    return found


FIELDS = [fields(data) for data in BASES]
STORED = [stored_code(data) for data in BASES]


def corrupted(seed: int) -> tuple[int, bytes]:
    """Which of the libraries, and what became of it."""
    chance = random.Random(seed)
    which = chance.randrange(len(BASES))
    data = bytearray(BASES[which])
    for _ in range(chance.randint(1, 5)):
        at = chance.choice(FIELDS[which])
        width = chance.choice("BHIQ")
        (old,) = struct.unpack_from(f"<{width}", data, at)
        new = chance.choice(
            [
                *_NUMBERS,
                old + 1,
                old - 1,
                old ^ 1 << chance.randrange(64),
                chance.getrandbits(64),
                chance.randrange(len(data)),
            ]
        )
        struct.pack_into(f"<{width}", data, at, new % (1 << 8 * struct.calcsize(width)))
    if chance.random() < 0.1:
        del data[chance.randrange(len(data)) :]
    if chance.random() < 0.05:
        data += chance.randbytes(chance.randrange(100))
    return which, bytes(data)


def blank(data: bytes, stored: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Addresses of what may change: device code (`stored`: in the file), what points at it, and headers."""
    names = {".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment", ".rela.dyn"}
    found = [(address, size) for name, (address, _, size) in sections_of(data).items() if name in names]
    table = struct.unpack_from("<Q", data, 32)[0]
    for kind, _, offset, address, _, size, *_ in segments_of(data):
        if kind == LOAD:
            inside = [(start, end) for start, end in stored if offset <= start and end <= offset + size]
            found += [(address - offset + start, end - start) for start, end in inside]
            found += [(address - offset, 64), (address - offset + table, 56 * len(segments_of(data)))]
    return found


def described(data: bytes, blanks: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Memory in order of address, without what is blank, and without where one segment ends and the next begins."""
    parts: list[tuple[int, bytearray]] = []
    for start, content in sorted(memory_of(data).items()):
        if parts and parts[-1][0] + len(parts[-1][1]) == start:
            parts[-1][1].extend(content)
        else:
            parts.append((start, bytearray(content)))
    for start, part in parts:
        for address, size in blanks:
            begin, end = max(address - start, 0), min(address - start + size, len(part))
            if begin < end:
                part[begin:end] = bytes(end - begin)
    return [(start, bytes(part)) for start, part in parts]


def test_corrupt_libraries(tmp_path):
    path = tmp_path / "liba.so"
    outcomes = dict.fromkeys(Outcome, 0)
    for seed in range(CASES):
        which, before = corrupted(seed)
        path.write_bytes(before)
        report = prune_library(path, 86, cut=bool(seed % 2))
        after = path.read_bytes()
        outcomes[report.outcome] += 1
        if report.outcome is not Outcome.PRUNED:
            assert after == before, seed
            continue
        blanks = blank(before, STORED[which])
        assert described(after, blanks) == described(before, blanks), seed
        assert prune_library(path, 86, cut=bool(seed % 2)).outcome is Outcome.UNCHANGED, seed
        assert len(after) <= len(before) + 4096, seed
    assert list(tmp_path.iterdir()) == [path]
    # Both ends were met: some corruptions do no harm, most are refused.
    assert outcomes[Outcome.PRUNED] > CASES // 20
    assert outcomes[Outcome.REFUSED] > CASES // 5
