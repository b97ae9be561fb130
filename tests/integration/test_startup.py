"""A runner that cannot start says why, with a code, and leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from builder.pipeline import build
from demo.cog_server import CogServer
from shared.errors import CogServerFailed, PortInUse
from tests.integration.conftest import unpacked
from tests.support.processes import MARK, wait_gone
from tests.support.tensorrt_llm_engine import runner_environment

MODEL = Path(__file__).parents[2] / "demo/model"


def with_member(archive: Path, name: str) -> bytes:
    """The archive, with a file of this name put in after its manifest."""
    stream = io.BytesIO()
    with tarfile.open(archive) as good, tarfile.open(fileobj=stream, mode="w") as bad:
        manifest, *_ = good.getmembers()
        bad.addfile(manifest, good.extractfile(manifest))
        member = tarfile.TarInfo(name)
        member.size = 4
        bad.addfile(member, io.BytesIO(b"evil"))
    return stream.getvalue()


@pytest.fixture
def start(tmp_path, saw):
    """`start(setting=value, ...)`: the text with which the set-up of a runner fails."""

    def run(**environment: str) -> str:
        mark = os.urandom(8).hex()
        cache = tmp_path / "cache"
        settings = {MARK: mark, "WEIGHTS_CACHE": str(cache), "TMPDIR": str(tmp_path), **environment}
        with (
            (tmp_path / "log").open("wb") as log,
            CogServer("runner", environment=settings, output=log.fileno()) as server,
            pytest.raises(CogServerFailed) as failed,
        ):
            server.wait_ready(60)
        assert wait_gone(mark) == {}
        assert not list(cache.glob("*"))
        return saw(str(failed.value))

    return run


def test_without_weights(start):
    assert "E4202 WeightsNotSet" in start()


def test_weights_that_are_not_there(start):
    assert "E4201 WeightsNotFound" in start(COG_WEIGHTS="/nowhere/engine.tar")


def test_an_unreachable_url(start):
    assert "E4200 WeightsUnreachable" in start(COG_WEIGHTS="http://127.0.0.1:1/engine.tar")


def test_a_truncated_archive(start, mock_archive, tmp_path):
    archive = tmp_path / "engine.tar"
    archive.write_bytes(mock_archive().read_bytes()[:50_000])
    assert "E4100 EngineArchiveMalformed" in start(COG_WEIGHTS=str(archive))


def test_an_archive_that_leaves_its_directory(start, mock_archive, tmp_path):
    (tmp_path / "engine.tar").write_bytes(with_member(mock_archive(), "../evil"))
    assert "E4101 EngineArchiveUnsafe" in start(COG_WEIGHTS=str(tmp_path / "engine.tar"))
    assert not list(tmp_path.rglob("evil"))


def test_an_engine_that_cannot_be_loaded(start, tmp_path):
    (tmp_path / "config.yaml").write_text(f"engine: ctranslate2\nmodel: {MODEL}\n")
    build(str(tmp_path / "config.yaml"), tmp_path / "engine.tar")
    engine = unpacked(tmp_path / "engine.tar", tmp_path)
    (engine / "engine/model.bin").write_bytes(b"no model")
    assert "E2300 CTranslate2Error" in start(ENGINE_DIR=str(engine))


def test_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortInUse):
        CogServer("runner", port=taken.getsockname()[1])


@pytest.fixture
def engine_dir(mock_archive, tmp_path):
    return str(unpacked(mock_archive(), tmp_path))


def test_a_port_for_metrics_that_is_taken(start, engine_dir):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"E4003 PortInUse: Port {port}" in start(ENGINE_DIR=engine_dir, METRICS_PORT=port)


def test_a_world_size_that_is_not_the_engines(start, engine_dir):
    text = start(ENGINE_DIR=engine_dir, WORLD_SIZE="2")
    assert "E4002 SettingInvalid: The setting WORLD_SIZE is 2" in text


def test_a_setting_that_is_not_valid(start):
    assert "E4002 SettingInvalid" in start(RESPONSE_TIMEOUT="soon")


def test_a_server_parameter_of_the_config_file_that_the_engine_refuses(start, tmp_path):
    config = {"instantiate": {"server": {"tensorrt_llm": {"args": {"kv_cache_free_gpu_mem_fraction": 7}}}}}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    settings = runner_environment(tmp_path) | {"COG_TRITON_CONFIG": str(tmp_path / "config.yaml")}
    assert "E2505 ServerParameterInvalid: The parameter kv_cache_free_gpu_mem_fraction" in start(**settings)
