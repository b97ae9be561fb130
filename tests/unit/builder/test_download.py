import errno
import itertools
import json
import os
import shutil

import pytest
import tenacity
from huggingface_hub import constants, file_download

from builder.sources.download import Download
from builder.sources.hub import HubModel
from shared.errors import (
    CheckpointInvalid,
    DownloadFailed,
    ModelCorrupt,
    ModelFilesMissing,
    ModelFolderUnusable,
    ModelNotFound,
    NotEnoughSpace,
    RevisionNotFound,
)
from shared.http import limits, parts
from tests.unit.builder.conftest import FILES

CUT = 300_000


def ignore(done, total=None):
    pass


def write_index(model_dir, *names):
    content = json.dumps({"weight_map": dict(enumerate(names))})
    (model_dir / "model.safetensors.index.json").write_text(content)


@pytest.fixture
def without_waiting(monkeypatch):
    monkeypatch.setattr(limits, "WAIT", tenacity.wait_none())


def test_takes_weights_and_tokenizer_only(hub, model_dir, state):
    for name in ("pytorch_model.bin", "consolidated.safetensors", "README.md"):
        (model_dir / name).write_bytes(b"x")
    (model_dir / "onnx").mkdir()
    (model_dir / "onnx/model.safetensors").write_bytes(b"x")
    Download("someone/tiny").run(state, ignore)
    assert {path.name: path.read_bytes() for path in state.model.path.iterdir()} == FILES


def test_takes_no_weights_when_the_tokenizer_is_enough(hub, state):
    Download("someone/tiny", weights=()).run(state, ignore)
    assert not (state.model.path / "model.safetensors").exists()
    assert (state.model.path / "tokenizer.json").exists()


@pytest.mark.parametrize("revision", [None, "main", "v1"])
def test_revision_becomes_a_commit(hub, state, revision):
    repository = hub.repositories["someone/tiny"]
    repository.revisions["v1"] = repository.commit
    Download("someone/tiny", revision).run(state, ignore)
    assert state.model.revision == repository.commit


def test_second_build_downloads_nothing(hub, state):
    Download("someone/tiny").run(state, ignore)
    hub.requests.clear()
    Download("someone/tiny").run(state, ignore)
    assert hub.file_requests() == []


def test_progress_counts_bytes(hub, state):
    shown = []
    Download("someone/tiny").run(state, lambda done, total=None: shown.append((done, total)))
    size = sum(len(content) for content in FILES.values())
    assert shown[-1] == (size, size)


def test_weights_come_over_several_connections(hub, state, model_dir):
    weights = bytes(parts.FIRST) + 2 * parts.PART * b"w"
    (model_dir / "model.safetensors").write_bytes(weights)
    Download("someone/tiny").run(state, ignore)
    assert (state.model.path / "model.safetensors").read_bytes() == weights
    ends = [0, parts.FIRST, parts.FIRST + parts.PART, len(weights)]
    ranges = {f"bytes={start}-{stop - 1}" for start, stop in itertools.pairwise(ends)}
    assert set(hub.ranges) == ranges | {"bytes=0-0"}


@pytest.mark.usefixtures("without_waiting")
def test_broken_transfer_is_resumed(hub, state):
    hub.cut_after = CUT
    Download("someone/tiny").run(state, ignore)
    last = len(FILES["model.safetensors"]) - 1
    assert hub.ranges == ["bytes=0-0", f"bytes=0-{last}", f"bytes={CUT}-{last}"]
    assert (state.model.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]


@pytest.mark.usefixtures("without_waiting")
def test_what_was_whole_when_a_download_failed_is_kept(hub, state, model_dir):
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    (model_dir / "model.safetensors").rename(model_dir / names[1])
    (model_dir / names[0]).write_bytes(b"first")
    write_index(model_dir, *names)
    hub.cut_after, hub.fails_after_cut = CUT, True
    with pytest.raises(DownloadFailed):
        Download("someone/tiny").run(state, ignore)
    hub.fails_after_cut = False
    before = len(hub.requests)
    Download("someone/tiny").run(state, ignore)
    again = [request for request in hub.requests[before:] if "/stored/" in request]
    assert set(again) == {"GET /stored/someone--tiny/model-00002-of-00002.safetensors"}
    assert len(list(state.model.path.glob("*.safetensors"))) == 2


def test_two_corrupted_files_that_are_one_in_the_cache_are_called_corrupt(hub, state):
    for name in ("generation_config.json", "tokenizer_config.json"):
        hub.tampered[name] = b"broken"
    with pytest.raises(ModelCorrupt, match=r"_config\.json .* its git-sha1 is"):
        Download("someone/tiny").run(state, ignore)
    hub.tampered.clear()
    Download("someone/tiny").run(state, ignore)
    assert (state.model.path / "tokenizer_config.json").read_bytes() == FILES["tokenizer_config.json"]


def test_a_corrupted_file_is_refused_and_not_kept(hub, state):
    content = bytearray(FILES["model.safetensors"])
    content[1000] ^= 1
    hub.tampered["model.safetensors"] = bytes(content)
    with pytest.raises(ModelCorrupt, match=r"model\.safetensors .* its sha256 is"):
        Download("someone/tiny").run(state, ignore)
    assert not state.model
    hub.tampered.clear()
    Download("someone/tiny").run(state, ignore)
    assert (state.model.path / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_a_cut_file_in_the_cache_does_not_pass_for_the_whole(hub, state):
    Download("someone/tiny").run(state, ignore)
    path = state.model.path / "model.safetensors"
    path.resolve().write_bytes(b"half")
    Download("someone/tiny").run(state, ignore)
    assert path.read_bytes() == FILES["model.safetensors"]


def test_a_disk_that_is_too_small_is_noticed_first(hub, state, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(NotEnoughSpace, match=r"1\.0 MB must be downloaded, but .* has 1\.0 kB free"):
        Download("someone/tiny").run(state, ignore)
    assert hub.file_requests() == []


@pytest.fixture
def listed(model_dir):
    """A model whose weights have the name that their index has for them."""
    (model_dir / "model.safetensors").rename(model_dir / "layers-0.safetensors")
    write_index(model_dir, "layers-0.safetensors")
    return model_dir


def test_what_an_index_lists_is_counted_before_it_is_fetched(hub, state, listed, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9 - 1000, 1000))
    with pytest.raises(NotEnoughSpace, match=r"1\.0 MB must be downloaded"):
        Download("someone/tiny").run(state, ignore)
    assert {request.rpartition("/")[2] for request in hub.file_requests()} == {"model.safetensors.index.json"}


def test_what_an_index_lists_is_accepted_before_it_is_fetched(hub, state, listed):
    told = []
    state.accept = told.append
    Download("someone/tiny").run(state, ignore)
    assert told == [{path.name: path.stat().st_size for path in listed.iterdir()}]
    hub.requests.clear()
    Download("someone/tiny").run(state, ignore)
    assert hub.file_requests() == []


def test_progress_counts_an_index_once(hub, state, listed):
    shown = []
    Download("someone/tiny").run(state, lambda done, total=None: shown.append((done, total)))
    size = sum(path.stat().st_size for path in listed.iterdir())
    assert shown[-1] == (size, size)


def test_what_an_index_lists_in_vain_is_noticed_before_the_weights_come(hub, state, model_dir):
    (model_dir / "model.safetensors").rename(model_dir / "layers-0.safetensors")
    write_index(model_dir, "layers-0.safetensors", "mtp.safetensors")
    with pytest.raises(
        CheckpointInvalid, match=r"no mtp\.safetensors, which model\.safetensors\.index\.json"
    ):
        Download("someone/tiny").run(state, ignore)
    assert not any(request.endswith(".safetensors") for request in hub.file_requests())


def test_an_index_that_was_tampered_with_is_not_followed(hub, state, listed):
    hub.tampered["model.safetensors.index.json"] = (
        (listed / "model.safetensors.index.json").read_bytes().replace(b"layers-0", b"layers-1")
    )
    with pytest.raises(ModelCorrupt, match=r"index\.json .* its git-sha1 is"):
        Download("someone/tiny").run(state, ignore)


@pytest.mark.parametrize("name", ["layers-0.safetensors", "model.safetensors.index.json"])
def test_no_link_leads_out_of_a_folder_by_way_of_an_index(state, listed, name):
    (listed / name).rename(listed.parent / "secret")
    (listed / name).symlink_to("../secret")
    with pytest.raises(ModelFolderUnusable, match=f"{name} is a link that leads out"):
        Download(str(listed)).run(state, ignore)


def test_a_cached_model_needs_no_space(hub, state, monkeypatch):
    Download("someone/tiny").run(state, ignore)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 0))
    Download("someone/tiny").run(state, ignore)


def test_a_disk_that_fills_up_meanwhile(hub, state, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(file_download, "http_get", full)
    with pytest.raises(NotEnoughSpace, match="cache was full before all of someone/tiny"):
        Download("someone/tiny").run(state, ignore)


def test_a_cache_of_somebody_else(hub, state, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "cache")

    monkeypatch.setattr(file_download, "_download_to_tmp_and_move", refuse)
    with pytest.raises(DownloadFailed, match=rf"cannot be written to by user {os.getuid()} \("):
        Download("someone/tiny").run(state, ignore)


def test_a_tokenizer_in_another_form_is_taken(hub, model_dir, state):
    (model_dir / "tokenizer.json").unlink()
    for name in ("vocab.json", "merges.txt", "special_tokens_map.json"):
        (model_dir / name).write_text("{}")
    Download("someone/tiny", weights=()).run(state, ignore)
    taken = {path.name for path in state.model.path.iterdir()}
    assert taken == set(FILES) - {"tokenizer.json", "model.safetensors"} | {
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
    }


@pytest.mark.parametrize("there", ["tekken.json", "tokenizer.json"])
def test_a_tekken_json_is_taken_where_it_is_the_tokenizer(there, hub, model_dir, state):
    """Of Mistral's own form of the checkpoint, which may stand beside the other, nothing else is."""
    for name in ("tekken.json", "consolidated.safetensors", "params.json"):
        (model_dir / name).write_text("{}")
    if there == "tekken.json":
        (model_dir / "tokenizer.json").unlink()
    Download("someone/tiny").run(state, ignore)
    taken = {path.name for path in state.model.path.iterdir()}
    assert taken == set(FILES) - {"tokenizer.json"} | {there}


def test_mistral_s_own_form_of_a_checkpoint_alone(hub, model_dir, state):
    for name in FILES:
        (model_dir / name).unlink()
    for name in ("tekken.json", "consolidated.safetensors", "params.json"):
        (model_dir / name).write_text("{}")
    with pytest.raises(
        ModelFilesMissing, match=r"no config\.json \(params\.json, of Mistral's own form, is not read\)"
    ):
        Download("someone/tiny").run(state, ignore)


def test_safetensors_are_preferred(hub, model_dir, state):
    (model_dir / "pytorch_model.bin").write_bytes(b"pickle")
    Download("someone/tiny", weights=("safetensors", "bin")).run(state, ignore)
    assert not (state.model.path / "pytorch_model.bin").exists()


def test_other_weights_are_taken_where_there_are_no_safetensors(hub, model_dir, state):
    (model_dir / "model.safetensors").rename(model_dir / "pytorch_model.bin")
    Download("someone/tiny", weights=("safetensors", "bin")).run(state, ignore)
    assert (state.model.path / "pytorch_model.bin").exists()


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("someone/unknown", "does not know it"),
        ("two words", "neither the name"),
        ("a/b/c", "neither the name"),
    ],
)
def test_model_not_found(hub, state, model, reason):
    with pytest.raises(ModelNotFound, match=reason):
        Download(model).run(state, ignore)


@pytest.mark.parametrize("path", ["published", "./published", "../{here}/published", "{parent}/published"])
def test_a_folder_counts_from_the_folder_of_the_config(hub, state, model_dir, path):
    beside = model_dir.parent
    Download(path.format(here=beside.name, parent=beside), beside=beside).run(state, ignore)
    assert state.model.path == model_dir
    assert hub.requests == []


def test_a_name_that_is_no_folder_is_of_the_hub(hub, state, tmp_path):
    Download("someone/tiny", beside=tmp_path).run(state, ignore)
    assert state.model.revision == hub.repositories["someone/tiny"].commit


def test_without_a_folder_of_the_config_a_name_is_of_the_hub(hub, state, tmp_path, monkeypatch):
    (tmp_path / "someone/tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    Download("someone/tiny").run(state, ignore)
    assert state.model.revision == hub.repositories["someone/tiny"].commit


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("./missing", "it does not exist"),
        ("{}/missing", "it does not exist"),
        ("{}/published/config.json", "it is a file"),
        ("../" * 50 + "missing", "it does not exist"),
    ],
)
def test_a_path_that_leads_to_no_folder(hub, state, model_dir, model, reason):
    with pytest.raises(ModelFolderUnusable, match=reason):
        Download(model.format(model_dir.parent), beside=model_dir.parent).run(state, ignore)
    assert hub.requests == []


def test_a_path_that_leads_in_a_circle_is_not_said_to_be_missing(state, tmp_path):
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(ModelFolderUnusable, match="symbolic links"):
        Download(str(tmp_path / "circle")).run(state, ignore)


def test_a_relative_path_needs_a_config_in_a_folder(state):
    with pytest.raises(ModelFolderUnusable, match="it must be absolute: this config is not in a folder"):
        Download("./published").run(state, ignore)


def test_unknown_revision(hub, state):
    with pytest.raises(RevisionNotFound):
        Download("someone/tiny", "v9").run(state, ignore)


def test_offline_uses_the_cache(hub, state, monkeypatch):
    Download("someone/tiny").run(state, ignore)
    online, hub.failing = state.model, True
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    Download("someone/tiny").run(state, ignore)
    assert state.model == online


def test_offline_without_the_model(hub, state, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed, match="HF_HUB_OFFLINE"):
        Download("someone/tiny").run(state, ignore)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline_the_hub_is_not_asked_what_the_model_has(hub, monkeypatch, name):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv(name, "1")  # the library heeds either, and has read it
    with pytest.raises(DownloadFailed, match=rf"failed: {name} is set\."):
        HubModel("someone/tiny", None, None).files()


def test_offline_with_half_of_the_model(hub, state, monkeypatch):
    Download("someone/tiny", weights=()).run(state, ignore)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed, match="the cache does not have all of it"):
        Download("someone/tiny").run(state, ignore)


def test_offline_without_a_part_that_the_index_lists(hub, model_dir, state, monkeypatch):
    names = ["layers-0.safetensors", "outside.safetensors"]
    (model_dir / "model.safetensors").unlink()
    for name in names:
        (model_dir / name).write_bytes(name.encode())
    write_index(model_dir, *names)
    Download("someone/tiny").run(state, ignore)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    Download("someone/tiny").run(state, ignore)
    (state.model.path / names[1]).unlink()
    with pytest.raises(DownloadFailed, match="the cache does not have all of it"):
        Download("someone/tiny").run(state, ignore)


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("tokenizer.json", "tokenizer.json"),
        ("config.json", "config.json"),
        ("model.safetensors", "weights in safetensors"),
    ],
)
def test_missing_files_are_noticed_before_the_download(hub, model_dir, state, file, missing):
    (model_dir / file).unlink()
    with pytest.raises(ModelFilesMissing, match=missing):
        Download("someone/tiny").run(state, ignore)
    assert hub.file_requests() == []


def test_directory(model_dir, state):
    Download(str(model_dir)).run(state, ignore)
    assert (state.model.path, state.model.name, state.model.revision) == (model_dir, "published", None)


def test_directory_without_weights(model_dir, state):
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(ModelFilesMissing):
        Download(str(model_dir)).run(state, ignore)


def test_a_directory_has_no_revisions(model_dir, state):
    with pytest.raises(RevisionNotFound):
        Download(str(model_dir), "main").run(state, ignore)
