"""Removed code that takes no place in the file."""

from __future__ import annotations

import struct

from nix.prune import Outcome, prune_library
from nix.prune.__main__ import main
from tests.unit.prune.libraries import (
    CUBIN,
    LOAD,
    Library,
    container,
    device_code_of,
    entry,
    memory_of,
    sections_of,
    segments_of,
)


def code(*sms: int, size: int = 150_000) -> bytes:
    return container(*(entry(CUBIN, sm, size, fill=sm) for sm in sms))


LIBRARY = Library([code(80, 86), code(80, 90), code(86)], wrapped=True, debug=b"\x77" * 5000)


def cut(tmp_path, library, sm=86):
    path = tmp_path / "liba.so"
    path.write_bytes(library.build())
    return path, prune_library(path, sm, cut=True)


def loaded(data: bytes) -> bytes:
    """All memory, from address 0."""
    image = memory_of(data)
    whole = bytearray(max(address + len(content) for address, content in image.items()))
    for address, content in image.items():
        whole[address : address + len(content)] = content
    return bytes(whole)


def wrapped(data: bytes) -> list[list[int]]:
    """What CUDA's runtime finds: by wrapper, the first bytes of the entries of its container."""
    memory = loaded(data)
    address, _, size = sections_of(data)[".rela.dyn"]
    found = []
    for slot, kind, addend in struct.iter_unpack("<QqQ", memory[address : address + size]):
        assert kind == 8
        assert memory[slot : slot + 8] == struct.pack("<Q", addend)
        magic, _, _, length = struct.unpack_from("<IHHQ", memory, addend)
        assert magic == 0xBA55ED50
        at, end, entries = addend + 16, addend + 16 + length, []
        while at < end:
            header, payload = struct.unpack_from("<IQ", memory, at + 4)
            entries.append(memory[at + header])
            at += header + payload
        found.append(entries)
    return found


def test_every_wrapper_finds_its_container(tmp_path):
    path, report = cut(tmp_path, LIBRARY)
    assert (report.outcome, report.reason) == (Outcome.PRUNED, "")
    assert wrapped(path.read_bytes()) == [[86], [80], [86]]


def test_the_file_shrinks_by_the_removed_code(tmp_path):
    path, report = cut(tmp_path, LIBRARY)
    assert report.cut > 290_000
    assert path.stat().st_size == report.size_after < len(LIBRARY.build()) - 290_000
    assert sum(kind == LOAD for kind, *_ in segments_of(path.read_bytes())) == 3


def test_the_rest_of_memory_is_the_same(tmp_path):
    before = LIBRARY.build()
    path, _ = cut(tmp_path, LIBRARY)
    after = path.read_bytes()
    old, new = loaded(before), loaded(after)
    assert len(old) == len(new)
    for name in (".rodata", ".eh_frame", ".data", ".bss"):
        address, _, size = sections_of(after)[name]
        assert sections_of(before)[name][0] == address
        assert old[address : address + size] == new[address : address + size]


def test_what_is_left_can_be_listed(tmp_path):
    path, _ = cut(tmp_path, LIBRARY)
    assert device_code_of(path.read_bytes()) == [[(CUBIN, 86, 86)], [(CUBIN, 80, 80)], [(CUBIN, 86, 86)]]


def test_a_container_that_nothing_points_at_stays(tmp_path):
    library = Library([code(80, 90), code(86)], wrapped=True, unknown=1)
    before = library.build()
    path, report = cut(tmp_path, library, sm=90)
    address, _, _ = sections_of(before)[".nv_fatbin"]
    last = address + len(code(80, 90))
    assert report.cut > 0
    assert loaded(path.read_bytes())[last : last + 4] == loaded(before)[last : last + 4]


def test_a_second_run_changes_nothing(tmp_path):
    path, _ = cut(tmp_path, LIBRARY)
    before = path.read_bytes()
    for how in (True, False):
        assert prune_library(path, 86, cut=how).outcome is Outcome.UNCHANGED
    assert path.read_bytes() == before


def test_otherwise_zeros(tmp_path):
    path, report = cut(tmp_path, Library([code(80, 86, size=104)] * 2, wrapped=True))
    assert (report.outcome, report.reason) == (Outcome.PRUNED, "not cut: nothing to cut")
    assert device_code_of(path.read_bytes()) == [[(CUBIN, 86, 86)]] * 2


def test_two_references_to_one_container_are_not_understood(tmp_path):
    data = bytearray(LIBRARY.build())
    _, offset, _ = sections_of(bytes(data))[".rela.dyn"]
    data[offset + 16 : offset + 24] = data[offset + 40 : offset + 48]
    path = tmp_path / "liba.so"
    path.write_bytes(data)
    report = prune_library(path, 86, cut=True)
    assert (report.outcome, report.cut) == (Outcome.PRUNED, 0)
    assert report.reason == "not cut: what points at device code is not understood"


def test_command(tmp_path, capsys):
    path = tmp_path / "liba.so"
    path.write_bytes(LIBRARY.build())
    assert main(["--sm", "86", "--cut", str(path)]) == 0
    assert "MB cut" in capsys.readouterr().out
