import json
import re

import pytest
from typer.testing import CliRunner

from cli.inspect import described, manifest_of
from cli.main import app
from shared.artifact import Manifest, PackedFile, extract_archive, write_archive
from shared.errors import EngineArchiveMalformed, WeightsNotFound, WeightsUnreachable
from tests.support.files import FileServer
from tests.unit.artifact.archives import FACTS

CONFIG = PackedFile("config.json", b"{}")
FIRST = 1 << 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engine.tar"


@pytest.fixture
def manifest(path) -> Manifest:
    """Of an engine of 32 MB at `path`."""
    engine = PackedFile("engine/rank0.engine", bytes(32 << 20))
    return write_archive(path, FACTS, [CONFIG, engine])


def test_only_the_first_range_is_fetched(path, manifest):
    with FileServer(path) as web:
        assert manifest_of(f"{web.url}?signature=x") == manifest
    assert web.ranges == [(0, 0), (0, FIRST - 1)]


def test_a_long_manifest_takes_more_ranges(path):
    files = [CONFIG, *(PackedFile(f"engine/{number:05}.bin", b"") for number in range(10_000))]
    manifest = write_archive(path, FACTS, files)
    with FileServer(path) as web:
        assert manifest_of(web.url) == manifest
    assert len(web.ranges) > 2


def test_a_server_without_ranges_is_left_early(path, manifest):
    with FileServer(path, has_ranges=False) as web:
        assert manifest_of(web.url) == manifest
    assert web.sent < path.stat().st_size // 2


def test_an_archive_that_is_cut(path, manifest):
    path.write_bytes(path.read_bytes()[:700])
    with (
        FileServer(path) as web,
        pytest.raises(EngineArchiveMalformed, match=r"middle of a file|cut short"),
    ):
        manifest_of(web.url)


def test_a_file_url(path, manifest):
    assert manifest_of(path.as_uri()) == manifest


def test_no_server():
    with pytest.raises(WeightsUnreachable, match=r"no connection \(Connection refused\)"):
        manifest_of("http://127.0.0.1:9/engine.tar")


def test_nothing_in_a_manifest_steers_the_terminal(path):
    """A stranger's archive could set the title, and forge a fact on a line of its own."""
    steering = "x\x1b]0;title\x07\nGPU: y\u202e\u2028"
    write_archive(path, FACTS.model_copy(update={"model": f"模型\u3000{steering}"}), [CONFIG])
    [line] = [one for one in described(manifest_of(str(path))).split("\n") if one.startswith("model:")]
    assert line == r"model:        模型　x\x1b]0;title\x07\nGPU: y\u202e\u2028"


def test_no_file(path):
    with pytest.raises(WeightsNotFound):
        manifest_of(str(path))


@pytest.mark.parametrize("here", [".", ".."])
def test_no_engine_in_the_directory_where_one_is(tmp_path, monkeypatch, here):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / ("below" if here == ".." else ""))
    with pytest.raises(WeightsNotFound, match=re.escape(f"There is no engine at {tmp_path}. Give")):
        manifest_of(here)


def test_one_file_is_one_file(path):
    write_archive(path, FACTS, [CONFIG])
    assert CliRunner().invoke(app, ["inspect", str(path)]).stdout.endswith(" in 1 file\n")


def test_the_command_prints_it_for_programs(path, manifest):
    printed = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
    assert printed == {"source": str(path), "manifest": manifest.model_dump(mode="json")}


def test_what_opens_an_address_is_not_printed(path, manifest):
    with FileServer(path) as web:
        url = web.url.replace("://", "://user:hunter2@") + "?signature=sig-1"
        printed = json.loads(CliRunner().invoke(app, ["inspect", url, "--json"]).stdout)
    assert printed == {"source": web.url, "manifest": manifest.model_dump(mode="json")}


def test_the_command_prints_it_for_people(path, manifest):
    printed = CliRunner().invoke(app, ["inspect", str(path)]).stdout.splitlines()
    assert printed[0] == "engine:       mock"
    assert printed[-1] == "size:         33.6 MB in 2 files"


def test_an_unpacked_engine(path, manifest, tmp_path):
    with path.open("rb") as archive:
        extract_archive(archive, tmp_path / "engine", check=lambda _: None, max_bytes=1 << 30)
    assert manifest_of(str(tmp_path / "engine")) == manifest


def test_an_unpacked_engine_that_was_copied_in_part(path, manifest, tmp_path):
    with path.open("rb") as archive:
        extract_archive(archive, tmp_path / "engine", check=lambda _: None, max_bytes=1 << 30)
    (tmp_path / "engine/manifest.json").unlink()
    assert (
        "it was copied only in part" in CliRunner().invoke(app, ["inspect", str(tmp_path / "engine")]).output
    )


def test_a_directory_without_an_engine(tmp_path):
    with pytest.raises(WeightsNotFound):
        manifest_of(str(tmp_path))
