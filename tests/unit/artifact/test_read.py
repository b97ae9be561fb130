import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.artifact import extract_archive, read_manifest
from shared.artifact.manifest import name_problem
from shared.errors import (
    EngineArchiveCorrupt,
    EngineArchiveMalformed,
    EngineArchiveTooLarge,
    EngineArchiveUnsafe,
    EngineArchiveVersion,
    EngineKindMismatch,
    WeightsNotStored,
)
from tests.unit.artifact.archives import (
    CONFIG,
    CONTENTS,
    END,
    Pipe,
    extract,
    files_below,
    forged,
    listing,
    made,
    member,
)

ARCHIVE = made()
REFUSALS = (
    EngineArchiveCorrupt,
    EngineArchiveMalformed,
    EngineArchiveTooLarge,
    EngineArchiveUnsafe,
    EngineArchiveVersion,
)
NAMES = st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=3).map("/".join)


@settings(deadline=None)
@given(st.dictionaries(NAMES.filter(lambda name: name_problem(name) is None), st.binary(max_size=2000)))
def test_what_was_packed_comes_out(contents):
    contents = {"config.json": CONFIG, **contents}
    # What is below a file cannot be packed at all.
    contents = {n: d for n, d in contents.items() if not any(n.startswith(f"{m}/") for m in contents)}
    contents.pop("manifest.json", None)
    with TemporaryDirectory() as directory:
        manifest = extract(made(contents), Path(directory) / "engine")
        files = files_below(Path(directory) / "engine")
    assert files == {**contents, "manifest.json": manifest.to_bytes()}


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3000))
def test_any_pace_of_the_stream_will_do(step):
    with TemporaryDirectory() as directory:
        destination = Path(directory) / "engine"
        extract_archive(Pipe(ARCHIVE, step), destination, check=lambda _: None, max_bytes=1 << 20)
        assert CONTENTS.items() <= files_below(destination).items()


def test_the_manifest_is_read_from_the_first_bytes():
    stream = io.BytesIO(ARCHIVE)
    assert read_manifest(stream) == listing(dict(sorted(CONTENTS.items())))
    assert stream.tell() < ARCHIVE.index(CONFIG)


def test_the_check_comes_before_anything_is_written(tmp_path):
    destination = tmp_path / "cache" / "engine"
    stream = io.BytesIO(ARCHIVE)

    def check(manifest):
        assert not destination.parent.exists()
        raise EngineKindMismatch(kind=manifest.engine, why="", available="ctranslate2")

    with pytest.raises(EngineKindMismatch):
        extract_archive(stream, destination, check=check, max_bytes=1 << 20)
    assert not destination.parent.exists()
    assert stream.tell() < ARCHIVE.index(CONFIG)


@pytest.mark.parametrize("length", range(0, len(ARCHIVE), 512))
def test_an_archive_cut_between_blocks_is_refused(tmp_path, length):
    with pytest.raises(EngineArchiveMalformed):
        extract(ARCHIVE[:length], tmp_path / "engine")
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(st.integers(0, len(ARCHIVE) - 1))
def test_an_archive_cut_anywhere_is_refused(length):
    with TemporaryDirectory() as directory:
        with pytest.raises(EngineArchiveMalformed):
            extract(ARCHIVE[:length], Path(directory) / "engine")
        assert not any(Path(directory).iterdir())


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(ARCHIVE) - 1), st.integers(1, 255))
def test_no_damaged_byte_changes_a_file(position, difference):
    damaged = bytearray(ARCHIVE)
    damaged[position] ^= difference
    with TemporaryDirectory() as directory:
        destination = Path(directory) / "engine"
        try:
            extract(bytes(damaged), destination)
        except REFUSALS:
            assert not any(Path(directory).iterdir())
        else:
            files = files_below(destination)
            files.pop("manifest.json")
            assert files == CONTENTS


@settings(deadline=None)
@given(st.binary(max_size=3000))
def test_noise_is_no_archive(noise):
    with TemporaryDirectory() as directory:
        with pytest.raises(EngineArchiveMalformed):
            extract(noise, Path(directory) / "engine")
        assert not any(Path(directory).iterdir())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"BZh9" + bytes(2000), "compressed with bzip2"),
        (b"\xfd7zXZ" + bytes(2000), "compressed with xz"),
        (b"version https://git-lfs.github.com/spec/v1\n", "pointer of Git LFS"),
        (b"<!doctype html>".ljust(2000), "not a tar"),
        (b"", "it is empty"),
        (b"engine: mock\n", "it is not a tar, or cut short"),
        (END, "empty"),
    ],
)
def test_what_is_no_tar_is_named(tmp_path, data, said):
    with pytest.raises(EngineArchiveMalformed, match=said):
        extract(data, tmp_path / "engine")


@pytest.mark.parametrize(
    "data",
    [
        ARCHIVE + b"x",
        ARCHIVE + ARCHIVE,
        ARCHIVE + bytes(2 << 20),
        ARCHIVE[:-512] + b"x" * 512,
    ],
)
def test_nothing_may_follow_the_end(tmp_path, data):
    with pytest.raises(EngineArchiveMalformed):
        extract(data, tmp_path / "engine")


def test_the_fill_of_the_last_record_may(tmp_path):
    assert extract(ARCHIVE + bytes(10240), tmp_path / "engine") is not None


MODEL = b"weights"
GOOD = {"config.json": CONFIG, "model.bin": MODEL}
FORGED = {
    "another content": (
        forged(listing(GOOD).to_bytes(), member("config.json", CONFIG), member("model.bin", b"WEIGHTS")),
        "SHA-256 differs",
    ),
    "another size": (
        forged(listing(GOOD).to_bytes(), member("config.json", CONFIG), member("model.bin", b"w")),
        "1 bytes instead of 7",
    ),
    "another name": (
        forged(listing(GOOD).to_bytes(), member("config.json", CONFIG), member("model.bim", MODEL)),
        "not listed",
    ),
    "one more": (
        forged(
            listing({"config.json": CONFIG}).to_bytes(),
            member("config.json", CONFIG),
            member("model.bin", MODEL),
        ),
        "not listed",
    ),
    "one less": (
        forged(listing(GOOD).to_bytes(), member("config.json", CONFIG)),
        "model.bin in the engine archive.* missing",
    ),
}


@pytest.mark.parametrize(("data", "said"), FORGED.values(), ids=FORGED)
def test_what_differs_from_the_manifest_is_refused(tmp_path, data, said):
    with pytest.raises(EngineArchiveCorrupt, match=said):
        extract(data, tmp_path / "engine")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_without_a_config_is_no_engine(tmp_path):
    data = forged(listing({"model.bin": MODEL}).to_bytes(), member("model.bin", MODEL))
    with pytest.raises(EngineArchiveMalformed, match=r"no config\.json"):
        extract(data, tmp_path / "engine")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    with pytest.raises(EngineArchiveTooLarge, match="more than 1000 bytes"):
        extract(ARCHIVE, tmp_path / "cache" / "engine", max_bytes=1000)
    assert list(tmp_path.iterdir()) == []


def test_the_limit_itself_may_be_reached(tmp_path):
    assert extract(ARCHIVE, tmp_path / "engine", max_bytes=sum(map(len, CONTENTS.values())))


def test_a_destination_that_exists_is_left_alone(tmp_path):
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "mine").write_bytes(b"")
    with pytest.raises(WeightsNotStored):
        extract(ARCHIVE, tmp_path / "engine")
    assert files_below(tmp_path) == {"engine/mine": b""}


def test_a_place_that_cannot_hold_a_directory_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WeightsNotStored, match=r"file/engine: "):
        extract(ARCHIVE, tmp_path / "file" / "engine")


class Broken(Pipe):
    def __init__(self, error: Exception) -> None:
        super().__init__(ARCHIVE[:2048])
        self._error = error

    def read(self, size: int, /) -> bytes:
        if data := super().read(size):
            return data
        raise self._error


@pytest.mark.parametrize(
    ("error", "met"),
    [
        (ConnectionResetError(104, "Connection reset"), EngineArchiveMalformed),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_stream_that_breaks_leaves_nothing(tmp_path, error, met):
    with pytest.raises(met):
        extract_archive(Broken(error), tmp_path / "engine", check=lambda _: None, max_bytes=1 << 20)
    assert list(tmp_path.iterdir()) == []
