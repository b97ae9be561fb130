"""Where `cog-triton model-repository` cannot write."""

import errno
import os
from pathlib import Path

import pytest

from builder.pipeline import build
from cli.model_repository import model_repository
from shared.errors import OutputRefused


@pytest.fixture
def engine(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIGHTS_CACHE", str(tmp_path / "weights"))
    build("data:,engine: mock", tmp_path / "engine.tar")
    return str(tmp_path / "engine.tar")


@pytest.mark.parametrize("place", ["file", "file/below", "/proc/models", "a" * 256])
def test_a_place_that_cannot_be_written_is_named(engine, tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(OutputRefused, match=place):
        model_repository(engine, tmp_path / place)


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "empty"])
def test_a_full_disk_is_named_and_leaves_what_was_there(engine, tmp_path, monkeypatch, is_new):
    out = tmp_path / "all" / "models"
    if not is_new:
        out.mkdir(parents=True)
    write_text = Path.write_text

    def full(path, text):
        write_text(path, text[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OutputRefused, match="No space left"):
        model_repository(engine, out)
    assert list(out.iterdir()) == [] if not is_new else not out.parent.exists()


def test_a_repository_with_models_is_left_as_it_is(engine, tmp_path):
    config = tmp_path / "models/tensorrt_llm/config.pbtxt"
    config.parent.mkdir(parents=True)
    config.write_text("a user's own")
    with pytest.raises(OutputRefused, match="models: the directory is not empty"):
        model_repository(engine, tmp_path / "models")
    assert [path for path in (tmp_path / "models").rglob("*") if path.is_file()] == [config]
    assert config.read_text() == "a user's own"
    assert not (tmp_path / "weights").exists()
