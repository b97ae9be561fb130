"""Archives that mean harm, or come from the time before manifests."""

import io
import tarfile

import pytest

from shared.artifact import read_manifest, tar
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

UNSAFE = {
    "absolute path": [entry("/etc/passwd")],
    "path upwards": [entry("../evil")],
    "path upwards and back": [entry("a/../../evil")],
    "control character": [entry("a\x1b[2Jb")],
    "device": [entry("sda", tarfile.BLKTYPE)],
    "terminal": [entry("tty", tarfile.CHRTYPE)],
    "fifo": [entry("fifo", tarfile.FIFOTYPE)],
    "unknown kind": [entry("volume", b"V")],
    "file twice": [entry("a"), entry("a")],
    "config twice": [entry("config.json")],
    "file below a file": [entry("config.json/a")],
    "file on a directory": [entry("a/b"), entry("a")],
    "directory on a file": [entry("config.json", tarfile.DIRTYPE)],
    "link out": [entry("a", tarfile.SYMTYPE, "../../etc/passwd")],
    "absolute link": [entry("a", tarfile.SYMTYPE, "/etc/passwd")],
    "link to nothing": [entry("a", tarfile.SYMTYPE, "b")],
    "link to itself": [entry("a", tarfile.SYMTYPE, "a")],
    "link out over a link": [entry("d/e", tarfile.DIRTYPE), entry("l", tarfile.SYMTYPE, "d/e"), entry("a", tarfile.SYMTYPE, "l/../../..")],
    "file through a link": [entry("l", tarfile.SYMTYPE, "/tmp"), entry("l/evil")],
    "hard link out": [entry("a", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link upwards": [entry("a", tarfile.LNKTYPE, "../evil")],
    "hard link to itself": [entry("a", tarfile.LNKTYPE, "a")],
    "hard link to a link": [entry("l", tarfile.SYMTYPE, "/etc/passwd"), entry("a", tarfile.LNKTYPE, "l")],
}  # fmt: skip


@pytest.mark.parametrize("entries", UNSAFE.values(), ids=UNSAFE)
def test_an_unsafe_entry_is_refused(tmp_path, entries):
    with pytest.raises(EngineArchiveUnsafe):
        extract(old(*entries), tmp_path / "cache" / "engine")
    assert list((tmp_path / "cache").iterdir()) == []


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
    with pytest.raises(EngineArchiveUnsafe, match="stands there twice"):
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


def tar_header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = entry(name, kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(records: bytes) -> bytes:
    return tar_header("././@PaxHeader", len(records), tarfile.XHDTYPE) + records + bytes(-len(records) % 512)


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
