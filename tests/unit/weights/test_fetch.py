import fcntl
import gzip
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from backports import zstd

from runner.weights import fetch_weights
from shared.artifact import EngineDirectory, Manifest
from shared.errors import EngineKindMismatch, WeightsNotFound, WeightsNotStored, WeightsUnreachable
from tests.unit.artifact.archives import CONTENTS, files_below, made, old


def fetch(source: object, cache: Path, check=lambda _: None, **more) -> EngineDirectory:
    return fetch_weights(str(source), cache, check=check, max_bytes=1 << 20, **more)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "engine 1.tar"
    path.write_bytes(made())
    return path


def refuse(manifest: Manifest | None) -> None:
    raise EngineKindMismatch(kind=manifest.engine, why="", available="ctranslate2")


def test_a_file_is_unpacked_into_the_cache(archive, cache):
    directory = fetch(archive, cache)
    assert directory.path.parent == cache
    assert CONTENTS.items() <= files_below(directory.path).items()


def test_a_file_url_is_that_file(archive, cache):
    assert fetch(archive.as_uri(), cache) == fetch(archive, cache)


def test_a_file_is_unpacked_once(archive, cache):
    first = fetch(archive, cache)
    (first.path / "mark").write_bytes(b"")
    assert (fetch(archive, cache).path / "mark").exists()


def test_another_file_at_the_same_place_is_another_engine(archive, cache):
    first = fetch(archive, cache)
    archive.write_bytes(made({**CONTENTS, "engine/more.bin": b""}))
    second = fetch(archive, cache)
    assert first != second
    assert len(second.manifest.files) == len(CONTENTS) + 1


def test_a_directory_is_used_in_place(archive, cache, tmp_path):
    unpacked = tmp_path / "engine"
    fetch(archive, cache).path.rename(unpacked)
    assert fetch(unpacked, cache).path == unpacked
    assert list(cache.iterdir()) == []


def test_an_old_engine_has_no_manifest(cache, tmp_path):
    (tmp_path / "old.tar").write_bytes(old())
    assert fetch(tmp_path / "old.tar", cache).manifest is None


def test_what_is_refused_is_not_kept(archive, cache):
    with pytest.raises(EngineKindMismatch):
        fetch(archive, cache, refuse)
    assert not cache.exists()


@pytest.mark.parametrize("in_place", [True, False])
def test_an_engine_that_is_there_already_is_checked_too(archive, cache, in_place):
    kept = fetch(archive, cache)
    with pytest.raises(EngineKindMismatch):
        fetch(kept.path if in_place else archive, cache, refuse)


def test_progress_ends_at_the_size_of_the_file(archive, cache):
    seen = []
    fetch(archive, cache, progress=lambda arrived, total: seen.append((arrived, total)))
    size = archive.stat().st_size
    assert seen[-1] == (size, size)


def test_the_slower_of_two_starts_uses_what_the_quicker_unpacked(archive, cache):
    quicker = []

    def start_another(arrived, _total):
        if not quicker:
            quicker.append(fetch(archive, cache))
            (quicker[0].path / "mark").write_bytes(b"")

    slower = fetch(archive, cache, progress=start_another)
    assert slower == quicker[0]
    assert (slower.path / "mark").exists()
    assert list(cache.iterdir()) == [slower.path]


@pytest.mark.parametrize("kind", [made, old])
def test_what_does_not_fit_is_refused_before_anything_is_written(cache, tmp_path, monkeypatch, kind):
    archive = tmp_path / "engine.tar"
    archive.write_bytes(kind())
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(
        WeightsNotStored, match=r"it takes [\d.]+ (bytes|kB), and the disk there has 10 bytes free"
    ):
        fetch(archive, cache)
    assert not cache.exists()


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_a_compressed_archive_is_told_by_its_bytes(cache, tmp_path, compress):
    archive = tmp_path / "engine.tar"
    archive.write_bytes(compress(made()))
    assert CONTENTS.items() <= files_below(fetch(archive, cache).path).items()


def test_a_cache_that_cannot_be_written_is_named(archive, tmp_path):
    with pytest.raises(WeightsNotStored, match=r"engine 1\.tar"):
        fetch(archive, archive)


@pytest.mark.parametrize("form", ["{}/none.tar", "file://{}/none.tar"])
def test_a_file_that_is_missing_is_named(cache, tmp_path, form):
    with pytest.raises(WeightsNotFound, match=r"There is no engine at (file://)?/.*/none\.tar"):
        fetch(form.format(tmp_path), cache)


def test_a_directory_without_an_engine_is_named(cache, tmp_path):
    with pytest.raises(WeightsNotFound):
        fetch(tmp_path, cache)


def test_a_file_that_cannot_be_read_is_named(archive, cache, monkeypatch):
    def refuse_to_open(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse_to_open)  # root may read everything
    with pytest.raises(WeightsUnreachable, match="this user has no permission to read it"):
        fetch(archive, cache)


def test_a_directory_that_cannot_be_read_is_named(cache, tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    with pytest.raises(WeightsUnreachable, match="this user has no permission to read it"):
        fetch(tmp_path, cache)


@pytest.mark.parametrize(
    ("make", "name"), [(made, "tokenizer/tokenizer.json"), (made, "engine/model"), (old, "rank0.engine")]
)
def test_a_part_of_another_users_engine_is_named(archive, cache, monkeypatch, make, name):
    """root may read everything, so that the system's answer is played."""
    archive.write_bytes(make())
    engine = fetch(archive, cache).path
    (engine / name).parent.mkdir(exist_ok=True)
    (engine / name).touch()

    def access(path, mode, real=os.access):
        return Path(path) != engine / name and real(path, mode)

    monkeypatch.setattr(os, "access", access)
    with pytest.raises(WeightsUnreachable, match=rf"{name} cannot be read: this user has no permission to"):
        fetch(engine, cache)


def test_a_folder_of_another_users_engine_is_named(archive, cache, monkeypatch):
    engine = fetch(archive, cache).path
    (engine / "engine").mkdir(exist_ok=True)

    def scandir(path, real=os.scandir):
        if Path(path) == engine / "tokenizer":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(WeightsUnreachable, match=r"/tokenizer cannot be read: this user has no permission"):
        fetch(engine, cache)


def test_what_is_no_part_of_an_engine_may_be_anybodys(archive, cache, monkeypatch):
    engine = fetch(archive, cache).path
    (engine / "lost+found").mkdir()

    def scandir(path, real=os.scandir):
        if Path(path).name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert fetch(engine, cache).path == engine


def test_other_kinds_of_address_are_named_without_their_secrets(cache):
    with pytest.raises(WeightsUnreachable) as caught:
        fetch("s3://me:password@bucket/engine.tar?token=secret", cache)
    assert "s3://bucket/engine.tar" in str(caught.value)
    assert "password" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_its_cache_an_engine_is_unpacked_again(archive, cache):
    shutil.rmtree(fetch(archive, cache).path)
    assert fetch(archive, cache).config == {"engine": "mock"}


def test_a_cache_with_too_long_a_name_is_named(tmp_path):
    (tmp_path / "engine.tar").touch()
    with pytest.raises(WeightsNotStored, match="File name too long"):
        fetch_weights(str(tmp_path / "engine.tar"), tmp_path / ("a" * 256), check=lambda _: None, max_bytes=1)


@pytest.fixture
def killed(cache):
    """What a killed fetch has left, and one that is in progress."""
    folders = [cache / f".{name}.{number}.partial" for name, number in (("a", "01234567"), ("b", "89abcdef"))]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "model.bin").write_bytes(bytes(1000))
        os.utime(folder, (1, 1))
    os.utime(folders[0] / "model.bin", (1, 1))
    return folders[0]


def test_what_a_killed_fetch_left_is_removed_and_what_is_in_work_is_not(archive, cache, killed):
    directory = fetch(archive, cache)
    assert {path.name for path in cache.iterdir()} == {".b.89abcdef.partial", directory.path.name}


def test_it_is_removed_before_it_is_measured_what_is_free(archive, cache, killed, monkeypatch):
    """In its place there is room for the engine. It was refused at each start."""
    usage = shutil.disk_usage(cache)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: usage._replace(free=0 if killed.exists() else 1 << 30)
    )
    fetch(archive, cache)


def test_it_is_removed_where_the_engine_is_there_already(archive, cache, request):
    fetch(archive, cache)
    killed = request.getfixturevalue("killed")
    fetch(archive, cache)
    assert not killed.exists()


@pytest.mark.parametrize("part", ["config.json", "manifest.json", "engine", "tokenizer", "engine/model.bin"])
@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_damaged_engine_in_the_cache_is_unpacked_again(archive, cache, part, how):
    """As by an `rm -r` that was interrupted. It was refused at each start, with a remedy for the archive."""
    directory = fetch(archive, cache).path
    whole = files_below(directory)
    if (directory / part).is_dir():
        shutil.rmtree(directory / part)
    else:
        (directory / part).unlink()
    if how == "empty":
        (directory / part).touch()
    assert files_below(fetch(archive, cache).path) == whole
    assert list(cache.iterdir()) == [directory]


def forbid(monkeypatch, method):
    """This user may not do that with any path."""

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, method, refuse)


def test_a_damaged_engine_whose_archive_cannot_be_reached_is_left(archive, cache, monkeypatch):
    directory = fetch(archive, cache).path
    (directory / "config.json").unlink()
    forbid(monkeypatch, "open")
    with pytest.raises(WeightsUnreachable):
        fetch(archive, cache)
    assert directory.is_dir()


def test_a_damaged_engine_that_this_user_may_not_replace_is_named(archive, cache, monkeypatch):
    """It was served without its files, or refused with a remedy for the archive."""
    directory = fetch(archive, cache).path
    (directory / "engine/model.bin").unlink()
    forbid(monkeypatch, "rename")
    with pytest.raises(WeightsNotStored, match="Permission denied"):
        fetch(archive, cache)


def test_an_engine_that_another_start_repairs_meanwhile_is_not_removed(archive, cache):
    directory = fetch(archive, cache).path
    model = directory / "engine/model.bin"
    content, inode = model.read_bytes(), directory.stat().st_ino
    model.unlink()
    lock = os.open(cache, os.O_RDONLY)
    with ThreadPoolExecutor() as threads:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            fetched = threads.submit(fetch, archive, cache)
            time.sleep(0.3)
            model.write_bytes(content)
        finally:
            os.close(lock)
        assert fetched.result(30).path == directory
    assert directory.stat().st_ino == inode
