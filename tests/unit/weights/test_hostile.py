"""Hostile archives, the whole way: nothing is written, and what was there is still there."""

import shutil
from types import SimpleNamespace

import pytest

from runner.weights import fetch_weights
from shared.errors import CogTritonError
from tests.support.files import FileServer
from tests.unit.artifact.archives import made
from tests.unit.artifact.hostile import HOSTILE, MAX_BYTES


def everything_below(directory):
    """Every path, with what it is and what is in it."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in directory.rglob("*")
    }


def test_there_are_enough_of_them():
    assert len(HOSTILE) > 60


@pytest.mark.parametrize("has_ranges", [True, False])
def test_an_engine_that_is_in_use_survives_all_of_them(tmp_path, monkeypatch, has_ranges):
    # One lies about its size, which is no lack of room.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 50))
    served = tmp_path / "served"
    served.mkdir()
    archive = served / "engine.tar"
    outside = tmp_path / "outside"

    def fetch(source):
        return fetch_weights(source, outside / "cache", check=lambda _: None, max_bytes=MAX_BYTES)

    archive.write_bytes(made())
    with FileServer(archive, has_ranges=has_ranges) as server:
        fetch(server.url)
        before = everything_below(outside)
        for number, (name, (data, error)) in enumerate(HOSTILE.items()):
            archive.write_bytes(data)
            try:
                fetch(f"{server.url}?{number}")
            except CogTritonError as met:
                assert data == b"" or type(met) is error, name  # noqa: PT017 - many in one server
            else:
                pytest.fail(f"taken: {name}")
            after = everything_below(outside)
            after[outside / "cache"] = before[outside / "cache"]  # its time tells of what came and went
            assert after == before, name
        assert fetch(server.url).manifest
