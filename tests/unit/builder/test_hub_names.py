"""A hub whose names of commits and contents lead out of the cache: nothing is written or removed there.

And one that names other hosts: they do not get its token.
"""

import os

import httpx2
import pytest
from huggingface_hub import constants

from builder.sources import hub_limits
from builder.sources.download import Download
from shared.errors import DownloadFailed
from tests.support.hub import Hub
from tests.unit.builder.conftest import FILES

PATHS = ["../../../../evil", "..", "a/b", "a\\b", "a" * 129]
IN_HEADERS = [
    ("ETag", "W.."),  # of which the library makes ..
    ("ETag", "W"),  # and of this, nothing
    ("X-Repo-Commit", ""),
    ("X-Repo-Commit", "main"),
    *((header, f'"{path}"') for header in ("ETag", "X-Linked-Etag") for path in PATHS),
    ("X-Repo-Commit", "b" * 40),  # not that of which the file was asked for
    *(("X-Repo-Commit", path) for path in PATHS),
]


@pytest.fixture
def elsewhere(hub, state, tmp_path):
    """What is outside the cache: it is the same before and after."""

    def found():
        files = (path for path in tmp_path.rglob("*") if "cache" not in path.parts)
        return {path: path.is_file() and path.read_bytes() for path in files}

    (tmp_path / "evil").write_text("ours")
    before = found()
    yield
    assert found() == before


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(("header", "claimed"), IN_HEADERS)
def test_a_hub_that_names_contents_by_paths_is_refused(hub, state, header, claimed):
    """Contents and commits have names that the library makes paths of."""
    hub.claims[header] = claimed
    with pytest.raises(DownloadFailed, match="a name that it cannot have"):
        Download("someone/tiny").run(state, lambda _done, _total=None: None)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("moved", ["", "/elsewhere"])
@pytest.mark.parametrize("claimed", [*PATHS, "", "main", "a" * 39, "A" * 40, 5])
def test_a_hub_that_names_a_commit_by_a_path_is_refused(hub, state, tmp_path, claimed, moved):
    hub.claims["sha"], hub.moved = claimed, moved
    with pytest.raises(DownloadFailed, match="a name that it cannot have"):
        Download("someone/tiny").run(state, lambda _done, _total=None: None)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("moved", [False, True])
def test_no_other_host_gets_the_token(hub, state, moved):
    """Not even for the rest of a list, for which the library asks wherever it is said to be."""
    repository = hub.repositories["someone/tiny"]
    page = f"/api/models/someone/tiny/tree/{repository.commit}"
    state.hf_token = "hf_secret"
    with Hub() as other:
        other.repositories = hub.repositories
        hub.next_page = other.url + page
        if moved:
            hub.moved, other.next_page = other.url, hub.next_page
        Download("someone/tiny").run(state, lambda _done, _total=None: None)
    assert f"GET {page}" in other.requests
    assert hub.tokens == {"hf_secret"}
    assert other.tokens == set()


@pytest.mark.parametrize(
    ("hub", "url", "sent"),
    [
        ("https://hub.example", "https://hub.example/api", True),
        ("http://hub.example", "https://hub.example/api", True),
        ("https://hub.example", "http://hub.example/api", False),
        ("https://hub.example", "https://hub.example:8443/api", False),
        ("https://hub.example", "https://cdn.hub.example/api", False),
        ("https://mirror.example", "https://huggingface.co/api", True),  # as the library has it
    ],
)
def test_who_gets_the_token(monkeypatch, hub, url, sent):
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    request = httpx2.Request("GET", url, headers={"Authorization": "Bearer hf_secret"})
    for hook in hub_limits._client().event_hooks["request"]:
        hook(request)
    assert ("Authorization" in request.headers) == sent


@pytest.mark.usefixtures("elsewhere")
def test_the_list_of_files_names_no_content(hub, state, model_dir):
    """The library takes names of contents from it for files that it fetches with Xet: it does not."""
    hub.claims["tree"] = "../../../../evil2"
    hub.claims["X-Linked-Etag"] = '"of-the-library"'  # then it fetches the large files too
    Download("someone/tiny").run(state, lambda _done, _total=None: None)
    assert (state.model.path / "model.safetensors").resolve().name == "of-the-library"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"{}", None])
def test_what_lies_outside_the_cache_is_not_taken_and_stays(hub, state, tmp_path, name, content):
    """Such links are those of a cache that was filled from a hub like those above, before they were refused."""
    Download("someone/tiny").run(state, lambda _done, _total=None: None)
    blob = (state.model.path / name).resolve()
    content = content or FILES[name]
    (victim := tmp_path / "victim").write_bytes(content)
    blob.unlink()
    blob.symlink_to(victim)
    Download("someone/tiny").run(state, lambda _done, _total=None: None)
    assert victim.read_bytes() == content
    assert not blob.is_symlink()
    assert (state.model.path / name).read_bytes() == FILES[name]


@pytest.mark.parametrize("content", [b"broken", FILES["model.safetensors"]])
def test_a_file_beside_the_model_s_folder_is_not_taken_and_stays(hub, state, tmp_path, content):
    """Without the library's mark, it is none that models share."""
    Download("someone/tiny").run(state, lambda _done, _total=None: None)
    pointer = state.model.path / "model.safetensors"
    blob = pointer.resolve()
    (shared := tmp_path / "cache/blobs/00/shared").parent.mkdir(parents=True)
    shared.write_bytes(content)
    blob.unlink()
    blob.symlink_to(os.path.relpath(shared, blob.parent))
    pointer.unlink()  # as before another commit with the same file
    Download("someone/tiny").run(state, lambda _done, _total=None: None)
    assert shared.read_bytes() == content
    assert pointer.read_bytes() == FILES["model.safetensors"]
    assert not blob.is_symlink()
