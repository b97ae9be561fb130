"""What pruning changes in a library, and what it leaves alone."""

from __future__ import annotations

import json
import os
import struct

import pytest

from nix.prune import Outcome, Refused, list_library, prune_library
from nix.prune.__main__ import main
from tests.unit.prune.libraries import (
    CUBIN,
    PTX,
    Library,
    container,
    device_code_of,
    entry,
    memory_of,
    sections_of,
)

SMS = (80, 86, 90)


def code(*sms: int, size: int = 600) -> bytes:
    return container(*(entry(CUBIN, sm, size, fill=sm) for sm in sms))


LIBRARY = Library([code(*SMS), code(80, 90, size=9000), code(90)], debug=b"\x77" * 5000)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "liba.so"
    path.write_bytes(LIBRARY.build())
    return path


def outside_device_code(data: bytes) -> list[bytes]:
    address, _, size = sections_of(data)[".nv_fatbin"]
    image = memory_of(data)
    parts = []
    for start, content in image.items():
        # Headers: 64 bytes of the file, and the program headers.
        begin = 64 + 56 * 4 if start == 0 else 0
        if start <= address < start + len(content):
            parts += [content[begin : address - start], content[address + size - start :]]
        else:
            parts.append(content[begin:])
    return parts


@pytest.mark.parametrize(
    "library", [LIBRARY, Library(LIBRARY.containers, b"\x77" * 50_000, late=b"\x66" * 99)]
)
def test_the_rest_of_memory_is_the_same(tmp_path, library):
    path = tmp_path / "liba.so"
    path.write_bytes(library.build())
    before = path.read_bytes()
    assert prune_library(path, 86).outcome is Outcome.PRUNED
    after = path.read_bytes()
    assert outside_device_code(after) == outside_device_code(before)
    assert device_code_of(after) == [[(CUBIN, 86, 86)], [(CUBIN, 80, 80)], []]


def test_containers_keep_their_addresses(path):
    before = path.read_bytes()
    prune_library(path, 86)
    after = path.read_bytes()
    address, offset, size = sections_of(before)[".nv_fatbin"]
    assert sections_of(after)[".nv_fatbin"] == (address, offset, size)
    magic = before[offset : offset + 4]
    starts = [at for at in range(offset, offset + size, 8) if before.startswith(magic, at)]
    assert [at for at in range(offset, offset + size, 8) if after.startswith(magic, at)] == starts


def test_what_is_removed_is_zeros(path):
    prune_library(path, 86)
    data = path.read_bytes()
    _, offset, size = sections_of(data)[".nv_fatbin"]
    assert data[offset : offset + size].count(90) == 0


def test_debug_sections_and_symbols_go(path):
    report = prune_library(path, 86)
    names = sections_of(path.read_bytes())
    assert not {".debug_info", ".symtab", ".strtab"} & set(names)
    assert {".comment", ".rodata", ".shstrtab"} < set(names)
    assert report.debug_removed == 5000 + 24 + 6
    assert path.stat().st_size == report.size_after


def test_debug_sections_stay_on_request(path):
    prune_library(path, 86, keep_debug=True)
    data = path.read_bytes()
    _, offset, size = sections_of(data)[".debug_info"]
    assert data[offset : offset + size] == b"\x77" * 5000


def test_a_second_run_changes_nothing(path):
    prune_library(path, 86)
    before = path.read_bytes(), path.stat().st_ino
    assert prune_library(path, 86).outcome is Outcome.UNCHANGED
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_two_runs_give_the_same_bytes(tmp_path):
    for name in "ab":
        (tmp_path / name).write_bytes(LIBRARY.build())
        prune_library(tmp_path / name, 90)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_it_is_not_pruned_for_another(path):
    prune_library(path, 80)
    before = path.read_bytes()
    report = prune_library(path, 90)
    assert report.outcome is Outcome.REFUSED
    assert report.reason == "pruned before, for sm_80; begin with the original"
    assert path.read_bytes() == before


def test_mode_stays_and_nothing_is_left_beside(path):
    path.chmod(0o751)
    prune_library(path, 86)
    assert path.stat().st_mode & 0o7777 == 0o751
    assert list(path.parent.iterdir()) == [path]


def test_a_dry_run_reports_and_writes_nothing(path):
    before = path.read_bytes()
    report = prune_library(path, 86, dry_run=True)
    assert path.read_bytes() == before
    prune_library(path, 86)
    assert path.stat().st_size == report.size_after


def test_list(path):
    assert list_library(path) == {
        "sm_80": (2, 664 + 9064),
        "sm_86": (1, 664),
        "sm_90": (3, 664 + 9064 + 664),
    }


def broken(at: int, with_: bytes) -> bytes:
    data = bytearray(LIBRARY.build())
    _, offset, _ = sections_of(bytes(data))[".nv_fatbin"]
    data[offset + at : offset + at + len(with_)] = with_
    return bytes(data)


def resized(*, file: int, memory: int) -> bytes:
    """With other sizes of the last segment that is loaded."""
    data = bytearray(LIBRARY.build())
    headers = range(64, 64 + 56 * 4, 56)
    last = max(at for at in headers if data[at] == 1)
    data[last + 32 : last + 48] = struct.pack("<QQ", file, memory)
    return bytes(data)


FATBIN_ADDRESS = sections_of(LIBRARY.build())[".nv_fatbin"][0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF" + bytes(100), "not an ELF file for x86-64"),
        (b"\x7fELF", "not an ELF file for x86-64"),
        (broken(0, b"\1"), "device code outside of a container"),
        (broken(4, b"\2"), "a container of version 2 with a header of 16 bytes"),
        (broken(8, b"\xff" * 8), "a container reaches past the end of its section"),
        (broken(16 + 2, b"\2"), "an entry of version 0x102 with a header of 64 bytes"),
        (broken(16 + 8, b"\xff" * 8), "an entry reaches past the end of its container"),
        (resized(file=1 << 30, memory=1 << 30), "a segment reaches past the end of the file"),
        (resized(file=8, memory=4), "a segment has more bytes in the file than in memory"),
        (LIBRARY.build() + b"more", "bytes after the end of the last section"),
        (Library([code(80)], relocated=[FATBIN_ADDRESS + 24]).build(), "relocations inside device code"),
    ],
)
def test_refused(tmp_path, data, reason):
    path = tmp_path / "liba.so"
    path.write_bytes(data)
    report = prune_library(path, 86)
    assert (report.outcome, report.reason) == (Outcome.REFUSED, reason)
    assert path.read_bytes() == data


def test_command(path, capsys):
    assert main(["--sm", "86", "--report", "json", str(path)]) == 0
    [report] = json.loads(capsys.readouterr().out)
    [library] = report["libraries"]
    assert (library["outcome"], library["device_after"]) == ("pruned", {"sm_80": 9064, "sm_86": 664})
    assert main(["list", str(path)]) == 0
    assert "sm_86" in capsys.readouterr().out


def test_command_with_a_refused_file(tmp_path, capsys):
    (tmp_path / "text").write_text("no library")
    assert main(["--sm", "86", str(tmp_path / "text")]) == 1
    assert "refused, " in capsys.readouterr().out
    assert main(["list", str(tmp_path / "text")]) == 1
    told = f"prune: {tmp_path / 'text'}: not an ELF file for x86-64\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.timeout(30)
def test_what_is_not_a_file_is_refused_and_the_others_are_pruned(path, tmp_path, capsys):
    folder, pipe, missing = (tmp_path / name for name in ("folder", "pipe", "missing"))
    folder.mkdir()
    os.mkfifo(pipe)
    assert main(["--sm", "86", *map(str, (folder, pipe, missing, path))]) == 1
    lines = capsys.readouterr().out.splitlines()
    reasons = ["not a regular file", "not a regular file", "No such file or directory"]
    assert [line.rpartition(": refused, ")[2] for line in lines[:3]] == reasons
    assert f"{path}: pruned, device code" in lines[3]
    assert main(["list", *map(str, (folder, pipe, missing, path))]) == 1
    told, problems = capsys.readouterr()
    assert told.startswith(f"{path}:\n")
    wrong = zip((folder, pipe, missing), reasons, strict=True)
    assert problems == "".join(f"prune: {name}: {reason}\n" for name, reason in wrong)


@pytest.mark.parametrize("sm", ["8.6", "8", "860", "-86"])
def test_an_architecture_that_there_is_not_is_refused(path, capsys, sm):
    before = path.read_bytes()
    with pytest.raises(SystemExit):
        main([f"--sm={sm}", str(path)])
    assert (
        f"'{sm}' is not a compute capability written without its dot, such as 86" in capsys.readouterr().err
    )
    assert path.read_bytes() == before


def test_list_of_what_is_no_library(tmp_path):
    (tmp_path / "text").write_text("no library" * 20)
    with pytest.raises(Refused, match="not an ELF file"):
        list_library(tmp_path / "text")


def test_ptx_is_named_by_its_target(tmp_path):
    path = tmp_path / "liba.so"
    path.write_bytes(Library([container(entry(PTX, 80))]).build())
    assert list_library(path) == {"compute_80": (1, 128)}
