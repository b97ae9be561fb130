"""Which engine the settings name, and whether this image serves it."""

from __future__ import annotations

import tarfile

import pytest

from cli.engines import engine_of
from runner.lifecycle import preparation
from runner.lifecycle.preparation import prepare_engine
from runner.settings import Settings
from shared.artifact import EngineFacts, PackedFile, write_archive
from shared.errors import EngineKindMismatch, SettingInvalid, WeightsNotSet


def settings(tmp_path, **environment: str) -> Settings:
    return Settings.from_environment({"WEIGHTS_CACHE": str(tmp_path / "cache"), **environment})


@pytest.fixture
def archive(tmp_path):
    facts = EngineFacts(engine="mock", model="m", cog_triton_version="1")
    write_archive(tmp_path / "engine.tar", facts, [PackedFile("config.json", b"{}")])
    return tmp_path / "engine.tar"


def test_no_engine_is_named(tmp_path):
    with pytest.raises(WeightsNotSet):
        prepare_engine(settings(tmp_path), ["mock"], engine_of)


def test_an_engine_of_another_kind_is_refused_before_it_is_unpacked(tmp_path, archive):
    with pytest.raises(
        EngineKindMismatch, match='The engine "mock" is needed; this image serves: ctranslate2'
    ):
        prepare_engine(settings(tmp_path, COG_WEIGHTS=str(archive)), ["ctranslate2"], engine_of)
    assert not list((tmp_path / "cache").glob("*"))


def test_a_tar_that_may_be_no_engine_is_told_as_such(tmp_path):
    with tarfile.open(tmp_path / "engine.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("config.json"))
    with pytest.raises(EngineKindMismatch, match="not an engine"):
        prepare_engine(settings(tmp_path, COG_WEIGHTS=str(tmp_path / "engine.tar")), ["mock"], engine_of)


def test_weights_come_before_the_engine_directory(tmp_path, archive):
    engine = prepare_engine(
        settings(tmp_path, COG_WEIGHTS=str(archive), ENGINE_DIR="/nowhere"), ["mock"], engine_of
    )
    assert engine.manifest.engine == "mock"
    again = prepare_engine(settings(tmp_path, ENGINE_DIR=str(engine.path)), ["mock"], engine_of)
    assert again.path == engine.path


@pytest.mark.parametrize("address", ["0.0.0.0:5700", "[::]:5700"])
def test_an_address_that_other_hosts_cannot_reach_is_told_as_it_was_set(tmp_path, address):
    with pytest.raises(SettingInvalid) as refused:
        preparation._hosts(settings(tmp_path, HOSTS_ADDRESS=address), "vllm")
    assert f"The setting HOSTS_ADDRESS is '{address}', but the others need" in str(refused.value)
