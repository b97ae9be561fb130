"""A runner that cannot start says why, with a code, and leaves nothing behind."""

from __future__ import annotations

import io
import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from shared.cog.server import CogServer
from shared.errors import CogServerFailed
from tests.support.processes import MARK, wait_gone

if TYPE_CHECKING:
    from pathlib import Path


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


def test_a_setting_that_is_not_valid(start):
    assert "E4002 SettingInvalid" in start(RESPONSE_TIMEOUT="soon")
