"""Archives that mean harm, or come from the time before manifests."""

import io
import tarfile
import tracemalloc

import pytest

from shared.artifact import read, read_manifest, tar
from shared.errors import EngineArchiveMalformed, EngineArchiveTooLarge, EngineArchiveUnsafe
from tests.unit.artifact.archives import (
    CONFIG,
    END,
    entry,
    extract,
    files_below,
    forged,
    listing,
    member,
    old,
)
from tests.unit.artifact.hostile import HOSTILE, MAX_BYTES, pax, record, tar_header


@pytest.mark.parametrize(("data", "error"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(tmp_path, data, error):
    with pytest.raises(error):
        extract(data, tmp_path / "cache" / "engine", max_bytes=MAX_BYTES)
    assert not (tmp_path / "cache").exists() or list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(
    "unsafe",
    [
        entry("a", tarfile.SYMTYPE, "config.json"),
        entry("a", tarfile.LNKTYPE, "config.json"),
        entry("a", tarfile.DIRTYPE),
        entry("a", tarfile.FIFOTYPE),
        entry("../a"),
    ],
    ids=["link", "hard link", "directory", "fifo", "path upwards"],
)
def test_with_a_manifest_there_are_plain_files_only(tmp_path, unsafe):
    data = forged(listing({"config.json": CONFIG}).to_bytes(), member("config.json", CONFIG), unsafe.tobuf())
    with pytest.raises(EngineArchiveUnsafe):
        extract(data, tmp_path / "engine")
    assert list(tmp_path.iterdir()) == []


def test_a_file_cannot_stand_twice_below_a_manifest(tmp_path):
    data = forged(listing({"config.json": CONFIG}).to_bytes(), *[member("config.json", CONFIG)] * 2)
    with pytest.raises(EngineArchiveUnsafe, match="is in it twice"):
        extract(data, tmp_path / "engine")


def test_a_manifest_cannot_come_later(tmp_path):
    data = member("config.json", CONFIG) + member("manifest.json", listing({}).to_bytes()) + END
    with pytest.raises(EngineArchiveMalformed, match=r"manifest\.json is not the first file"):
        extract(data, tmp_path / "engine")


def test_a_manifest_of_any_size_is_not_read_into_memory():
    with pytest.raises(EngineArchiveMalformed, match=r"manifest\.json in it has 1073741824 bytes"):
        read_manifest(io.BytesIO(tar_header("manifest.json", 1 << 30)))


def test_many_bytes_without_a_manifest_are_too_many(tmp_path):
    data = member("config.json", CONFIG) + member("model.bin", bytes(2000)) + END
    with pytest.raises(EngineArchiveTooLarge, match="more than 2000 bytes"):
        extract(data, tmp_path / "engine", max_bytes=2000)
    assert list(tmp_path.iterdir()) == []


def test_many_entries_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(tar, "MAX_ENTRIES", 10)
    with pytest.raises(EngineArchiveTooLarge, match="more than 10 entries"):
        extract(old(*[entry(f"d{i}", tarfile.DIRTYPE) for i in range(10)]), tmp_path / "engine")


def test_many_directories_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "MAX_ENTRIES", 10)
    deep = "/".join("d" * 10)
    extract(old(entry(deep, tarfile.DIRTYPE), entry(f"{deep}/a")), tmp_path / "engine")
    with pytest.raises(EngineArchiveTooLarge, match="more than 10 directories"):
        extract(old(entry(f"{deep}/d/a")), tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["engine"]


def test_headers_of_headers_take_no_memory():
    comments = [pax(b"".join(record(f"{n}-{key}", "") for key in range(5000))) for n in range(20)]
    data = io.BytesIO(b"".join(comments) + member("config.json", CONFIG) + END)
    tracemalloc.start()
    try:
        read_manifest(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


def test_headers_without_end_are_too_many():
    comment = pax(record("comment", "0" * 1_000_000))
    with pytest.raises(EngineArchiveMalformed, match="its headers have more than 134217728 bytes"):
        read_manifest(io.BytesIO(comment * 135 + member("config.json", CONFIG) + END))


@pytest.mark.parametrize(
    "data",
    [
        tar_header("x", 2 << 20, tarfile.XHDTYPE),
        tar_header("x", -1, tarfile.XHDTYPE),
        tar_header("x", -512),
        pax(b"6 a=b\n") + END,
        pax(b"7 a=b\n") + member("x", b""),
        pax(b"3 a=b\n") + member("x", b""),
        pax(b"a=b\n") + member("x", b""),
        pax(b"9999999 a=b\n") + member("x", b""),
        pax(b"11 size=-1\n") + member("x", b""),
        pax(b"5010 size=" + b"9" * 4999 + b"\n") + member("x", b""),
    ],
)
def test_a_strange_header_is_refused(data):
    with pytest.raises(EngineArchiveMalformed):
        read_manifest(io.BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [tar_header("x", 0, tarfile.GNUTYPE_SPARSE), pax(b"22 GNU.sparse.major=1\n") + member("x", b"")],
)
def test_a_sparse_file_is_refused(data):
    with pytest.raises(EngineArchiveMalformed, match="sparse file"):
        read_manifest(io.BytesIO(data))


def test_an_old_archive_loads_without_a_manifest(tmp_path):
    directory = entry("./", tarfile.DIRTYPE)
    assert extract(old(directory, entry("./rank0.engine")), tmp_path / "engine") is None
    assert files_below(tmp_path / "engine") == {"config.json": CONFIG, "rank0.engine": b""}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_an_old_archive_may_link_inside(tmp_path, kind):
    extract(old(entry("a.json", kind, "config.json")), tmp_path / "engine")
    assert files_below(tmp_path / "engine") == {"config.json": CONFIG, "a.json": CONFIG}


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_come_in_both_forms(tmp_path, form):
    names = ["config.json", "n" * 200, "größe/" + "m" * 150]
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=form) as archive:
        for name in names:
            archive.addfile(entry(name))
        archive.addfile(entry("d" * 120, tarfile.DIRTYPE))
        archive.addfile(entry("link", tarfile.SYMTYPE, names[1]))
    extract(output.getvalue(), tmp_path / "engine")
    assert sorted(files_below(tmp_path / "engine")) == sorted([*names, "link"])
    assert (tmp_path / "engine" / ("d" * 120)).is_dir()


def test_comments_for_the_whole_archive_are_passed_over(tmp_path):
    output = io.BytesIO()
    with tarfile.open(
        fileobj=output, mode="w", pax_headers={"comment": "made by hand", "path": "evil"}
    ) as archive:
        archive.addfile(entry("config.json"))
    extract(output.getvalue(), tmp_path / "engine")
    assert list(files_below(tmp_path / "engine")) == ["config.json"]
