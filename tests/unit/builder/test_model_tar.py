"""A model that is published as a tar."""

import io
import os
import shutil
import tarfile

import pytest
from huggingface_hub import constants

from builder.sources.download import Download
from shared.errors import DownloadFailed, ModelNotFound, ModelTarUnusable, NotEnoughSpace
from tests.support.loopback import folder_server
from tests.unit.artifact.archives import made
from tests.unit.builder.conftest import FILES


def ignore(done, total=None):
    pass


@pytest.fixture
def web(tmp_path):
    """Serves files; returns its address and the directory."""
    directory = tmp_path / "web"
    directory.mkdir()
    with folder_server(directory) as server:
        yield server.url, directory


def pack(path, files):
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_tar_of_a_model(web, state):
    url, directory = web
    pack(directory / "tiny.tar", FILES)
    Download(f"{url}/tiny.tar?signature=abc").run(state, ignore)
    assert state.model.name == "tiny.tar"
    assert {path.name: path.read_bytes() for path in state.model.path.iterdir()} == FILES


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (
            {**FILES, "../evil": b"x"},
            r"it cannot be unpacked \('\.\./evil' leads out of the archive\)",
        ),
        ({"manifest.json": b'{"format_version": 9}', **FILES}, r"unpacked \(it is an engine\.tar\)"),
        ({"tiny/config.json": b"{}"}, "has no config.json"),
        (
            {
                **{name: content for name, content in FILES.items() if name != "tokenizer.json"},
                "tokenizer.json/x": b"x",
            },
            "cannot be used: tokenizer.json in it is not a file",
        ),
    ],
)
def test_bad_tar(web, state, files, reason):
    url, directory = web
    pack(directory / "tiny.tar", files)
    with pytest.raises(ModelTarUnusable, match=reason):
        Download(f"{url}/tiny.tar").run(state, ignore)
    assert list(state.work_dir.iterdir()) == []


def test_a_tar_that_is_an_engine(web, state):
    url, directory = web
    (directory / "engine.tar").write_bytes(made())
    with pytest.raises(ModelTarUnusable, match="not a model"):
        Download(f"{url}/engine.tar").run(state, ignore)
    assert list(state.work_dir.iterdir()) == []


def test_missing_tar_hides_the_signature(web, state):
    url, _ = web
    with pytest.raises(DownloadFailed, match=r"answered 404 .* Check the address") as caught:
        Download(f"{url}/tiny.tar?signature=abc").run(state, ignore)
    assert "signature" not in str(caught.value)


def test_a_tar_that_does_not_fit_is_not_fetched(web, state, monkeypatch):
    url, directory = web
    pack(directory / "tiny.tar", FILES)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(NotEnoughSpace, match=f"the model's tar takes .*, but {state.work_dir.parent} has"):
        Download(f"{url}/tiny.tar").run(state, ignore)
    assert list(state.work_dir.iterdir()) == []
    state.tars = state.work_dir / "kept"
    state.tars.mkdir()
    with pytest.raises(NotEnoughSpace, match=f"the model's tar takes .*, but {state.tars} has"):
        Download(f"{url}/tiny.tar").run(state, ignore)


def test_what_a_killed_fetch_of_a_tar_left_is_removed_before_it_is_measured_what_is_free(
    web, state, monkeypatch
):
    url, directory = web
    pack(directory / "tiny.tar", FILES)
    state.tars = state.work_dir / "kept"
    left = state.tars / ".model-1.01234567.partial"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    usage = shutil.disk_usage(state.tars)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=0 if left.exists() else 1 << 30))
    Download(f"{url}/tiny.tar").run(state, ignore)


@pytest.mark.parametrize("path", ["", "/", "/tree/main"])
def test_a_page_of_the_hub_is_not_taken_for_a_tar(state, path):
    """It was fetched, and found not to be a tar."""
    page = f"https://huggingface.co/someone/tiny{path}"
    with pytest.raises(
        ModelNotFound,
        match="the page of someone/tiny on the hub, not a tar; write `model: someone/tiny`, or in the older",
    ):
        Download(page).run(state, ignore)


def test_a_tar_on_the_hubs_host_is_not_taken_for_a_page(web, state, monkeypatch):
    url, directory = web
    (directory / "someone").mkdir()
    pack(directory / "someone/tiny.tar", FILES)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    Download(f"{url}/someone/tiny.tar").run(state, ignore)
    assert state.model.name == "tiny.tar"
