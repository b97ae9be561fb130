"""A cache that the hub library filled with Xet: its models share files in a store beside their folders."""

import hashlib
import os

import pytest
from huggingface_hub import constants
from huggingface_hub.utils._shared_blobs import SHARED_BLOBS_MARKER_NAME, publish_blob_to_shared_store

from builder.sources.download import Download
from shared.errors import ModelCorrupt, ModelFolderUnusable
from tests.unit.builder.conftest import FILES

WEIGHTS = "model.safetensors"


def load(model, state):
    Download(str(model)).run(state, lambda _done, _total=None: None)


@pytest.fixture
def snapshot(hub, state):
    """A model in the cache, its files in the store, where the library itself has put them."""
    load("someone/tiny", state)
    for name in FILES:
        blob = (state.model.path / name).resolve()
        content = blob.read_bytes()
        assert publish_blob_to_shared_store(
            blob_path=str(blob),
            xet_hash=hashlib.sha256(content).hexdigest(),
            cache_dir=constants.HF_HUB_CACHE,
            expected_size=len(content),
        )
    hub.requests.clear()
    return state.model.path


@pytest.fixture
def cache(snapshot):
    return snapshot.parents[2]


@pytest.fixture
def shared(snapshot):
    return (snapshot / WEIGHTS).resolve()


def blob_of(snapshot):
    return snapshot / (snapshot / WEIGHTS).readlink()


def test_offline_it_is_there(snapshot, state, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    load("someone/tiny", state)
    assert {path.name: path.read_bytes() for path in state.model.path.iterdir()} == FILES


def test_online_nothing_is_fetched_nor_changed(hub, snapshot, cache, state):
    before = {path: path.lstat().st_ino for path in cache.rglob("*")}
    load("someone/tiny", state)
    assert hub.file_requests() == []
    assert {path: path.lstat().st_ino for path in cache.rglob("*")} == before


def test_its_folder_is_a_model(hub, snapshot, state):
    load(snapshot, state)
    assert state.model.path == snapshot
    assert hub.requests == []


def test_another_commit_takes_the_file_too(hub, snapshot, state):
    (snapshot / WEIGHTS).unlink()  # as before that commit was fetched
    load("someone/tiny", state)
    assert blob_of(snapshot).is_symlink()
    assert not [request for request in hub.requests if request.startswith("GET /stored/")]


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_is_broken_there_is_not_taken_and_stays(snapshot, shared, state, is_cut):
    """Other models have it, too: it is the library's to remove."""
    broken = FILES[WEIGHTS][:-1] + (b"" if is_cut else b"x")
    shared.chmod(0o600)
    shared.write_bytes(broken)
    if not is_cut:
        (snapshot / WEIGHTS).unlink()
        with pytest.raises(ModelCorrupt):
            load("someone/tiny", state)
    load("someone/tiny", state)
    assert shared.read_bytes() == broken
    assert (snapshot / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert not blob_of(snapshot).is_symlink()


def without_mark(cache, snapshot, shared):
    (cache / "blobs" / SHARED_BLOBS_MARKER_NAME).unlink()


def of_another_layout(cache, snapshot, shared):
    mark = cache / "blobs" / SHARED_BLOBS_MARKER_NAME
    mark.unlink()
    mark.write_text("2\n")


def with_a_mark_that_no_memory_holds(cache, snapshot, shared):
    mark = cache / "blobs" / SHARED_BLOBS_MARKER_NAME
    mark.chmod(0o600)
    os.truncate(mark, 1 << 43)


def with_a_link_as_mark(cache, snapshot, shared):
    mark = cache / "blobs" / SHARED_BLOBS_MARKER_NAME
    mark.rename(mark.with_name("ab"))
    mark.symlink_to("ab")  # as long as the mark is


def with_a_folder_as_mark(cache, snapshot, shared):
    mark = cache / "blobs" / SHARED_BLOBS_MARKER_NAME
    mark.unlink()
    mark.mkdir()


def with_a_pipe_as_mark(cache, snapshot, shared):
    mark = cache / "blobs" / SHARED_BLOBS_MARKER_NAME
    mark.unlink()
    os.mkfifo(mark)


def elsewhere(cache, snapshot, shared):
    (cache / "blobs").rename(cache.parent / "elsewhere")
    (cache / "blobs").symlink_to(cache.parent / "elsewhere")


def with_a_link_in_it(cache, snapshot, shared):
    shared.rename(cache.parent / "victim")
    shared.symlink_to(cache.parent / "victim")


def with_a_linked_folder_in_it(cache, snapshot, shared):
    shared.parent.rename(cache.parent / "victims")
    shared.parent.symlink_to(cache.parent / "victims")


def by_another_name(name):
    def link(cache, snapshot, shared):
        (other := cache / "blobs" / name).parent.mkdir(parents=True, exist_ok=True)
        shared.rename(other)
        blob_of(snapshot).unlink()
        blob_of(snapshot).symlink_to(f"../../blobs/{name}")

    return link


def past_the_blobs(cache, snapshot, shared):
    blob_of(snapshot).unlink()
    (snapshot / WEIGHTS).unlink()
    (snapshot / WEIGHTS).symlink_to(shared)


def by_another_model(cache, snapshot, shared):
    (other := cache / "models--someone--secret/blobs").mkdir(parents=True)
    blob_of(snapshot).rename(other / "blob")
    blob_of(snapshot).symlink_to(other / "blob")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "change",
    [
        without_mark,
        of_another_layout,
        with_a_mark_that_no_memory_holds,
        with_a_link_as_mark,
        with_a_folder_as_mark,
        with_a_pipe_as_mark,
        elsewhere,
        with_a_link_in_it,
        with_a_linked_folder_in_it,
        by_another_name("0" * 64),
        by_another_name(f"ab/{'0' * 64}"),
        by_another_name(f"00/{'0' * 63}"),
        by_another_name(f"00/{'0' * 65}"),
        by_another_name(f"AB/AB{'0' * 62}"),
        by_another_name(f"00/{'0' * 64}.refs"),
        by_another_name(f"00/00/{'0' * 64}"),
        by_another_name(f"../other/00/{'0' * 64}"),
        past_the_blobs,
        by_another_model,
    ],
)
def test_what_is_not_that_store_is_not_taken_and_stays(hub, cache, snapshot, shared, state, change):
    change(cache, snapshot, shared)
    end = (snapshot / WEIGHTS).resolve()
    with pytest.raises(ModelFolderUnusable, match="is a link that leads out"):
        load(snapshot, state)
    load("someone/tiny", state)
    assert end.read_bytes() == FILES[WEIGHTS]
    assert (snapshot / WEIGHTS).resolve().parent == snapshot.parents[1] / "blobs"


@pytest.mark.timeout(20)
def test_a_link_to_itself_in_the_store_is_no_file(snapshot, shared, state):
    shared.unlink()
    shared.symlink_to(shared.name)
    with pytest.raises(ModelFolderUnusable, match=f"{WEIGHTS} is a link that leads out"):
        load(snapshot, state)
    load("someone/tiny", state)
    assert shared.is_symlink()
    assert (snapshot / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_a_folder_outside_a_cache_shares_nothing(cache, shared, state):
    (model := cache / "tiny").mkdir()
    for name in FILES:
        (model / name).write_bytes(FILES[name])
    (model / "blobs").mkdir()
    (model / "blobs/weights").symlink_to(shared)
    (model / WEIGHTS).unlink()
    (model / WEIGHTS).symlink_to("blobs/weights")
    with pytest.raises(ModelFolderUnusable, match=f"{WEIGHTS} is a link that leads out"):
        load(model, state)
