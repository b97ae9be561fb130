import os
from pathlib import Path

import pytest

from shared.artifact import EngineDirectory
from shared.errors import (
    EngineArchiveMalformed,
    ModelRepositoryNotServed,
    WeightsNotFound,
    WeightsUnreachable,
)
from tests.unit.artifact.archives import CONTENTS, extract, listing, made


def test_an_engine_has_a_place_for_each_part(tmp_path):
    extract(made(), tmp_path / "engine")
    directory = EngineDirectory(tmp_path / "engine")
    assert directory.manifest == listing(dict(sorted(CONTENTS.items())))
    assert directory.config == {"engine": "mock"}
    assert directory.tokenizer_files == tmp_path / "engine" / "tokenizer"


def test_an_old_engine_is_flat(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    directory = EngineDirectory(tmp_path)
    assert directory.manifest is None
    assert directory.tokenizer_files == tmp_path


@pytest.mark.parametrize("name", ["", "none"])
def test_there_must_be_an_engine(tmp_path, name):
    with pytest.raises(WeightsNotFound):
        EngineDirectory(tmp_path / name)


def test_a_model_repository_is_none(tmp_path):
    (tmp_path / "tensorrt_llm/1").mkdir(parents=True)
    config = tmp_path / "tensorrt_llm/config.pbtxt"
    config.write_text('name: "tensorrt_llm"\nbackend: "tensorrtllm"\n')
    with pytest.raises(ModelRepositoryNotServed, match=r"\(tensorrtllm\).* Use the engine itself with the"):
        EngineDirectory(tmp_path)
    (tmp_path / "tensorrt_llm/1/config.json").write_text("{}")
    with pytest.raises(ModelRepositoryNotServed, match="tensorrt_llm/1, with the"):
        EngineDirectory(tmp_path)
    config.write_text('name: "tensorrt_llm"\nbackend: "engine_bridge"\n')
    with pytest.raises(WeightsNotFound):
        EngineDirectory(tmp_path)


def test_a_model_repository_of_vllm_is_served_and_no_engine(tmp_path):
    """Nothing else should be used instead; that it is no unpacked engine is all that is wrong here."""
    for model, backend in (("mine", "vllm"), ("other", "python")):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.pbtxt").write_text(f'backend: "{backend}"\n')
    with pytest.raises(WeightsNotFound, match="a directory that holds an unpacked one"):
        EngineDirectory(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": ' + b"9" * 100_000 + b"}",
    ],
)
def test_the_config_must_be_an_object(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(EngineArchiveMalformed, match=r"config\.json"):
        _ = EngineDirectory(tmp_path).config


def test_a_pipe_is_not_read(tmp_path):
    (tmp_path / "models").mkdir()
    os.mkfifo(tmp_path / "models/config.pbtxt")
    with pytest.raises(WeightsNotFound):
        EngineDirectory(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(EngineArchiveMalformed, match=r"manifest\.json in it is not a file"):
        _ = EngineDirectory(tmp_path).manifest


@pytest.mark.parametrize("name", ["config", "manifest"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    extract(made(), tmp_path / "engine")
    directory = EngineDirectory(tmp_path / "engine")
    file = tmp_path / f"engine/{name}.json"
    file.unlink()
    file.mkdir()
    with pytest.raises(EngineArchiveMalformed, match=rf"{name}\.json in it is not a file"):
        getattr(directory, name)


@pytest.fixture
def forbid(monkeypatch):
    """Have the system refuse a method of Path: root may read everything."""

    def forbid(method):
        def refused(path, **_):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, method, refused)

    return forbid


@pytest.mark.parametrize("name", ["config", "manifest"])
def test_a_file_of_another_user_is_no_damaged_archive(tmp_path, name, forbid):
    extract(made(), tmp_path / "engine")
    directory = EngineDirectory(tmp_path / "engine")
    forbid("read_bytes")
    with pytest.raises(
        WeightsUnreachable, match=rf"/engine/{name}\.json cannot be read: this user has no perm"
    ):
        getattr(directory, name)


def test_the_config_of_another_users_model_repository_is_named(tmp_path, forbid):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.pbtxt").touch()
    forbid("read_text")
    with pytest.raises(
        WeightsUnreachable, match=r"/model/config\.pbtxt cannot be read: this user has no perm"
    ):
        EngineDirectory(tmp_path)
