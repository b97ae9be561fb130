"""Device code among a library's other data: only code of other architectures becomes zeros, where it is."""

from __future__ import annotations

import pytest

from nix.prune import Outcome, list_library, prune_library
from tests.unit.prune.libraries import (
    CUBIN,
    LTO,
    PTX,
    F,
    Library,
    container,
    cubin,
    entry,
    sections_of,
)

ENTRIES = [entry(CUBIN, sm, 600, fill=sm) for sm in (80, 86, 90)]
BLACKWELL = entry(CUBIN, 100, 900, F, fill=100)
FRAMES = {sm: cubin(sm) for sm in (80, 86, 90, 100)}
LIBRARY = Library(
    stored=[
        container(*ENTRIES),
        container(BLACKWELL),
        container(entry(PTX, 75)),
        container(entry(LTO, 75)),
    ],
    cubins=list(FRAMES.items()),
)


def pruned(tmp_path, library: Library, sm: int, **how: bool) -> tuple[bytes, bytes]:
    path = tmp_path / "liba.so"
    before = library.build()
    path.write_bytes(before)
    assert prune_library(path, sm, **how).outcome in {Outcome.PRUNED, Outcome.UNCHANGED}
    return before, path.read_bytes()


def section(data: bytes, name: str) -> bytes:
    _, offset, size = sections_of(data)[name]
    return data[offset : offset + size]


def without(data: bytes, *gone: bytes) -> bytes:
    for one in gone:
        assert data.count(one) == 1
        data = data.replace(one, bytes(len(one)))
    return data


@pytest.mark.parametrize("cut", [False, True])
def test_code_of_others_becomes_zeros(tmp_path, cut):
    before, after = pruned(tmp_path, LIBRARY, 86, cut=cut)
    others = (bytes([80]) * 600, bytes([90]) * 600, bytes([100]) * 900)
    assert section(after, ".cask_resource") == without(section(before, ".cask_resource"), *others)
    assert section(after, ".ldata") == without(section(before, ".ldata"), FRAMES[90], FRAMES[100])
    assert {name: place[0] for name, place in sections_of(before).items() if place[0]} == {
        name: place[0] for name, place in sections_of(after).items() if place[0]
    }


@pytest.mark.parametrize(("sm", "kept"), [(80, {80}), (86, {80, 86}), (90, {90})])
def test_the_lone_cubins_that_may_run_stay(tmp_path, sm, kept):
    _, after = pruned(tmp_path, LIBRARY, sm)
    assert {one for one, frame in FRAMES.items() if frame in after} == kept


def test_a_second_run_changes_nothing(tmp_path):
    _, once = pruned(tmp_path, LIBRARY, 86)
    path = tmp_path / "liba.so"
    report = prune_library(path, 86)
    assert (report.outcome, path.read_bytes()) == (Outcome.UNCHANGED, once)
    assert report.device_before == report.device_after


def test_the_list_has_what_is_left(tmp_path):
    pruned(tmp_path, LIBRARY, 86)
    assert list_library(tmp_path / "liba.so") == {
        "sm_80": (1, len(FRAMES[80])),
        "sm_86": (2, 664 + len(FRAMES[86])),
        "compute_75": (1, 128),
        "kind8_75": (1, 128),
    }


def frame_with(at: int, value: int) -> bytes:
    frame = bytearray(FRAMES[100])
    frame[at] = value
    return bytes(frame)


@pytest.mark.parametrize(
    "cubins",
    [
        [(3, FRAMES[100])],  # no architecture
        [(100, frame_with(0, 0))],
        [(100, frame_with(9, 0b110))],  # a block of a kind that is not known
        [(100, FRAMES[100][:-1])],
        [(100, FRAMES[100] + b"\1" * 8)],
    ],
)
def test_a_frame_that_is_not_as_its_record_says_stays(tmp_path, cubins):
    before, after = pruned(tmp_path, Library(cubins=cubins), 86)
    assert after == before


def test_a_frame_whose_records_disagree_stays(tmp_path):
    library = Library(cubins=[(100, FRAMES[100]), (80, FRAMES[80])])
    data = bytearray(library.build())
    _, relocations, _ = sections_of(bytes(data))[".rela.dyn"]
    # Both records lead to the first frame.
    data[relocations + 40 : relocations + 48] = data[relocations + 16 : relocations + 24]
    path = tmp_path / "liba.so"
    path.write_bytes(data)
    assert prune_library(path, 86).outcome is Outcome.UNCHANGED


def test_what_only_begins_like_a_container_stays(tmp_path):
    stored = container(BLACKWELL)
    library = Library(stored=[stored[:16] + b"\7" * 2 + stored[18:]])
    before, after = pruned(tmp_path, library, 86)
    assert after == before


def test_a_relocation_inside_is_refused(tmp_path):
    address, _, _ = sections_of(Library(stored=[container(BLACKWELL)], relocated=[0]).build())[
        ".cask_resource"
    ]
    library = Library(stored=[container(BLACKWELL)], relocated=[address + 40 + 16 + 64 + 8])
    path = tmp_path / "liba.so"
    path.write_bytes(library.build())
    report = prune_library(path, 86)
    assert (report.outcome, report.reason) == (Outcome.REFUSED, "relocations inside device code")
