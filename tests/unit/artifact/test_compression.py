import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from shared.artifact import compression, read_manifest
from shared.errors import EngineArchiveMalformed, EngineArchiveTooLarge
from tests.unit.artifact.archives import CONTENTS, extract, files_below, made, old
from tests.unit.artifact.test_read import REFUSALS

ARCHIVE = made()
HALF = len(ARCHIVE) // 2
FORMS = {
    "gzip": gzip.compress(ARCHIVE),
    "gzip in members, as pigz and bgzip write": gzip.compress(ARCHIVE[:HALF]) + gzip.compress(ARCHIVE[HALF:]),
    "gzip with zeros behind it, as tapes have": gzip.compress(ARCHIVE) + bytes(512),
    "Zstandard": zstd.compress(ARCHIVE),
    "Zstandard in frames, as pzstd writes": zstd.compress(ARCHIVE[:HALF]) + zstd.compress(ARCHIVE[HALF:]),
    "Zstandard --long": zstd.compress(ARCHIVE, options={zstd.CompressionParameter.window_log: 27}),
}


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_a_compressed_archive_is_what_is_in_it(tmp_path, data):
    assert extract(data, tmp_path / "engine") is not None
    assert CONTENTS.items() <= files_below(tmp_path / "engine").items()


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
def test_so_is_one_of_the_time_before_manifests(tmp_path, compress):
    assert extract(compress(old()), tmp_path / "engine") is None


@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_its_manifest_is_read_from_its_first_bytes(data):
    assert read_manifest(io.BytesIO(data)) is not None


@pytest.mark.parametrize(
    ("compress", "said"), [(bz2.compress, "compressed with bzip2"), (lzma.compress, "compressed with xz")]
)
def test_other_forms_are_named(tmp_path, compress, said):
    with pytest.raises(EngineArchiveMalformed, match=said):
        extract(compress(ARCHIVE), tmp_path / "engine")


def test_a_window_that_takes_too_much_memory_is_not_damage(tmp_path):
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    with pytest.raises(EngineArchiveMalformed, match="window of more than 128 MiB") as error:
        extract(compressor.compress(ARCHIVE) + compressor.flush(), tmp_path / "engine")
    assert "damaged" not in str(error.value)
    assert "compress it again" in str(error.value)
    assert not any(tmp_path.iterdir())


COMPRESSED = st.sampled_from([FORMS["gzip"], FORMS["Zstandard"]])


@given(COMPRESSED, st.data())
def test_one_that_is_cut_anywhere_is_refused(data, drawn):
    length = drawn.draw(st.integers(0, len(data) - 1))
    with TemporaryDirectory() as directory:
        with pytest.raises(EngineArchiveMalformed):
            extract(data[:length], Path(directory) / "engine")
        assert not any(Path(directory).iterdir())


@given(COMPRESSED, st.data())
def test_no_damaged_byte_changes_a_file(data, drawn):
    damaged = bytearray(data)
    damaged[drawn.draw(st.integers(0, len(data) - 1))] ^= drawn.draw(st.integers(1, 255))
    with TemporaryDirectory() as directory:
        destination = Path(directory) / "engine"
        try:
            extract(bytes(damaged), destination)
        except REFUSALS:
            assert not any(Path(directory).iterdir())
        else:
            assert CONTENTS.items() <= files_below(destination).items()


def test_what_comes_out_is_bounded_by_what_went_in(monkeypatch):
    """Whatever the limit of the engine is: an extended header takes no room, but time."""
    monkeypatch.setattr(compression, "_ANY_RATIO", 1 << 20)
    bomb = io.BytesIO(zlib.compress(bytes(64 << 20), wbits=31))
    stream = compression.decompressed(bomb)
    out = []
    with pytest.raises(EngineArchiveTooLarge, match="100 times its compressed size"):
        out.extend(iter(lambda: len(stream.read(1 << 20)), 0))
    assert sum(out) < 10 << 20


def test_weights_of_zeros_are_no_bomb():
    stream = compression.decompressed(io.BytesIO(gzip.compress(bytes(32 << 20))))
    assert sum(len(chunk) for chunk in iter(lambda: stream.read(1 << 20), b"")) == 32 << 20


@pytest.mark.parametrize(
    "empty",
    [gzip.compress(b""), zstd.compress(b""), b"\x50\x2a\x4d\x18\xe8\x03\0\0" + bytes(1000)],
    ids=["gzip", "Zstandard", "a frame to skip"],
)
def test_parts_that_hold_nothing_come_to_an_end(monkeypatch, empty):
    """They took seconds for each megabyte, and no room that a limit would count."""
    monkeypatch.setattr(compression, "_MAX_SILENCE", 100_000)
    beginning = gzip.compress(b"x") if empty.startswith(b"\x1f\x8b") else zstd.compress(b"x")
    endless = io.BytesIO(beginning + empty * (1_000_000 // len(empty)))
    stream = compression.decompressed(endless)
    with pytest.raises(EngineArchiveMalformed, match="of its data hold nothing"):
        list(iter(lambda: stream.read(1 << 20), b""))
    assert endless.tell() < 500_000
