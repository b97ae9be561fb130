import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.artifact import PackedFile, read_manifest, write_archive
from shared.artifact.tar import TarStream
from shared.artifact.write import header
from shared.errors import NotEnoughSpace, PackageFailed
from tests.unit.artifact.archives import CONFIG, CONTENTS, FACTS, Pipe, listing, made, packed


@settings(max_examples=20, deadline=None)
@given(st.randoms())
def test_the_order_of_the_files_does_not_matter(order: random.Random):
    names = list(CONTENTS)
    order.shuffle(names)
    assert made({name: CONTENTS[name] for name in names}) == made()


def test_the_age_and_mode_of_files_do_not_matter(tmp_path):
    source = tmp_path / "model.bin"
    source.write_bytes(CONTENTS["engine/model.bin"])
    source.chmod(0o700)
    os.utime(source, (1, 1))
    output = tmp_path / "engine.tar"
    write_archive(output, FACTS, [*packed(CONTENTS)[::2], PackedFile("engine/model.bin", source)])
    assert output.read_bytes() == made()


def test_tar_itself_reads_it(tmp_path):
    archive = tmp_path / "engine.tar"
    archive.write_bytes(made())
    listed = subprocess.run(["tar", "-tf", archive], check=True, capture_output=True, text=True)
    assert listed.stdout.split() == ["manifest.json", *sorted(CONTENTS)]
    assert not listed.stderr


def test_the_manifest_lists_every_file(tmp_path):
    written = write_archive(tmp_path / "engine.tar", FACTS, packed(CONTENTS))
    assert written == listing(CONTENTS)
    with (tmp_path / "engine.tar").open("rb") as archive:
        assert read_manifest(archive) == written


def test_progress_counts_the_bytes_of_the_files(tmp_path):
    seen: list[int] = []
    write_archive(tmp_path / "engine.tar", FACTS, packed(CONTENTS), seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == sum(map(len, CONTENTS.values()))


@pytest.mark.parametrize("size", [0, 8**11 - 1, 8**11, 100 << 40])
def test_a_header_holds_any_size(size):
    read = TarStream(Pipe(header("engine/model.bin", size))).next()
    assert (read.name, read.size) == ("engine/model.bin", size)


def test_a_large_size_is_read_by_others_too():
    block = header("model.bin", 9 << 30)
    assert tarfile.TarInfo.frombuf(block[:512], "utf-8", "strict").type == tarfile.XHDTYPE
    assert b"size=9663676416\n" in block


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["config.json", "config.json"], "'config.json' is in it twice"),
        (["config.json", "manifest.json"], "'manifest.json' is in it twice"),
        (["config.json", "../engine"], "leads out of"),
        (["config.json", "/engine"], "absolute"),
        (["config.json", "a", "a/b"], "'a' is both a file and a directory"),
        (["engine/model.bin"], "config.json is missing"),
    ],
)
def test_names_that_no_reader_takes_are_refused(tmp_path, names, said):
    with pytest.raises(PackageFailed) as caught:
        write_archive(tmp_path / "engine.tar", FACTS, [PackedFile(name, b"") for name in names])
    assert said in str(caught.value)
    assert list(tmp_path.iterdir()) == []


class Growing:
    """A source that gets longer while it is packed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, _so_far: int) -> None:
        with self.path.open("ab") as file:
            file.write(b"more")


def test_a_file_that_changes_its_size_is_an_error(tmp_path):
    source = tmp_path / "model.bin"
    source.write_bytes(b"weights")
    files = [PackedFile("config.json", CONFIG), PackedFile("engine/model.bin", source)]
    with pytest.raises(PackageFailed, match=r"engine/model.bin changed while it was being packed"):
        write_archive(tmp_path / "engine.tar", FACTS, files, Growing(source))
    assert list(tmp_path.iterdir()) == [source]


def test_a_source_that_is_missing_is_named(tmp_path):
    files = [PackedFile("config.json", CONFIG), PackedFile("engine/model.bin", tmp_path / "none")]
    with pytest.raises(PackageFailed, match=r"engine/model.bin: No such file or directory"):
        write_archive(tmp_path / "engine.tar", FACTS, files)


def test_a_directory_is_no_source(tmp_path):
    files = [PackedFile("config.json", CONFIG), PackedFile("engine", tmp_path)]
    with pytest.raises(PackageFailed, match="engine: not a file"):
        write_archive(tmp_path / "engine.tar", FACTS, files)


@pytest.mark.parametrize("folder", ["", "."])
def test_a_full_disk_is_named_and_leaves_the_archive_of_before(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    output = Path(folder or tmp_path) / "engine.tar"
    output.write_bytes(b"before")

    def full(_so_far: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 2_500_000))
    with pytest.raises(NotEnoughSpace) as caught:
        write_archive(output, FACTS, packed(CONTENTS), full)
    assert f"the engine archive filled {tmp_path}, which had 2.5 MB free. " in str(caught.value)
    assert output.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == ["engine.tar"]

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 20))
    with pytest.raises(NotEnoughSpace, match=f"and {tmp_path} has 20 bytes free"):
        write_archive(output, FACTS, packed(CONTENTS))


def test_a_place_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(PackageFailed, match=r"none/engine.tar: No such file or directory"):
        write_archive(tmp_path / "none" / "engine.tar", FACTS, packed(CONTENTS))


def test_what_a_killed_writer_left_of_this_archive_is_removed(tmp_path):
    """Also when its name has a meaning in patterns. Others are not ours to judge."""
    old, new = ".my [1].tar.01234567.partial", ".my [1].tar.89abcdef.partial"
    others = (".my 1.tar.01234567.partial", ".my [1].tar.gz.01234567.partial", ".my [1].tar.more.partial")
    for name in (old, new, *others):
        (tmp_path / name).write_bytes(b"half")
        if name != new:
            os.utime(tmp_path / name, (1, 1))
    write_archive(tmp_path / "my [1].tar", FACTS, packed(CONTENTS))
    assert {path.name for path in tmp_path.iterdir()} == {new, *others, "my [1].tar"}
