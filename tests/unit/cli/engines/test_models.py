"""Which models COG_WEIGHTS may name besides an engine.tar, and what a runner gets for them."""

import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from builder.tokenizer.step import MakeTokenizer
from cli.engines import engine_of
from runner.lifecycle import machine
from runner.lifecycle.machine import Gpu, Machine
from runner.lifecycle.preparation import prepare_engine
from runner.settings import Settings
from shared.artifact import EngineDirectory
from shared.errors import (
    CheckpointInvalid,
    ConfigInvalid,
    EngineKindMismatch,
    GpusMissing,
    ModelFilesMissing,
    ModelNotFound,
    WeightsTooLargeForGpu,
)
from tests.support.loopback import folder_server
from tests.unit.builder.test_vllm import TOKENIZER
from tests.unit.cli.engines.conftest import arguments, weights_of


def write_weights(model: Path, dtype: str, mib: int) -> None:
    """So many MiB in a file as safetensors writes it."""
    width = {"F32": 4, "BF16": 2}[dtype]
    tensor = {"dtype": dtype, "shape": [(mib << 20) // width], "data_offsets": [0, mib << 20]}
    header = json.dumps({"a": tensor}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(mib << 20)
    (model / "model.safetensors").write_bytes(content)


@pytest.fixture
def load(monkeypatch):
    """Load what COG_WEIGHTS names, on a machine with so many GPUs."""

    def load(source, gpus=1, free_mib=None, engines=("vllm",), **options):
        here = Machine(
            gpus=(Gpu("NVIDIA H200", 90, free_mib),) * gpus,
            driver="580.65",
            cuda=(13, 0),
            shared_mib=1024,
            locked_mib=None,
            memory_mib=64_000,
        )
        monkeypatch.setattr(machine, "read_machine", lambda _: here)
        monkeypatch.setenv("COG_WEIGHTS", str(source))
        return prepare_engine(Settings.from_environment(os.environ), list(engines), engine_of, **options)

    return load


def test_a_runner_serves_a_model_of_the_hub(hub, model, load):
    engine = load("someone/tiny")
    assert (engine.manifest.engine, engine.manifest.model) == ("vllm", "someone/tiny")
    assert (engine.path / "engine/model.safetensors").read_bytes() == (
        model / "model.safetensors"
    ).read_bytes()


def test_a_machine_that_cannot_run_it_is_refused_before_anything_is_fetched(tmp_path, hub, load):
    with pytest.raises(GpusMissing):
        load("someone/tiny", gpus=0)
    assert hub.requests == []
    assert not (tmp_path / "weights").exists()


def test_weights_that_no_gpu_has_room_for_are_refused_before_they_are_fetched(hub, model, load):
    write_weights(model, "BF16", 3)
    with pytest.raises(WeightsTooLargeForGpu, match="has 2 MiB free; the weights alone take 3 MiB"):
        load("someone/tiny", free_mib=2)
    assert not any("tokenizer" in request for request in hub.file_requests())


def test_weights_in_float32_take_half_of_their_files(hub, model, load):
    write_weights(model, "F32", 4)
    with pytest.raises(WeightsTooLargeForGpu, match="has 1 MiB free; the weights alone take 2 MiB"):
        load("someone/tiny", free_mib=1)
    with pytest.raises(WeightsTooLargeForGpu, match="has 1 MiB free; the weights alone take 2 MiB"):
        load(model, free_mib=1)
    assert load("someone/tiny", free_mib=2).manifest.gpu_bytes >> 20 == 2


def test_what_is_counted_is_what_the_index_lists(hub, model, load):
    write_weights(model, "BF16", 4)
    (model / "model.safetensors").rename(model / "layers-0.safetensors")
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "layers-0.safetensors"}}')
    write_weights(model, "F32", 4)
    with pytest.raises(WeightsTooLargeForGpu, match="has 3 MiB free; the weights alone take 4 MiB"):
        load("someone/tiny", free_mib=3)
    assert not any("tokenizer" in request for request in hub.file_requests())  # before anything is fetched


def test_a_host_of_several_needs_a_gpu_for_its_part(model, tmp_path, load):
    (tmp_path / "c.yaml").write_text("engine: vllm\nmodel: ./published\ntensor_parallel_size: 2\n")
    with pytest.raises(GpusMissing, match="needed by the engine: 2; shown by this machine: 1"):
        load(tmp_path / "c.yaml")
    assert load(tmp_path / "c.yaml", several_hosts=True).manifest.ranks == 2


def test_a_folder_with_a_model_is_served_where_it_lies(model, tmp_path):
    weights = Path(weights_of(str(model)))
    engine = EngineDirectory(weights)
    assert engine.manifest is not None
    assert (engine.manifest.engine, engine.manifest.model) == ("vllm", "published")
    assert (weights / "engine/model.safetensors").resolve() == model / "model.safetensors"
    assert (weights / "tokenizer/tokenizer.json").resolve() == model / "tokenizer.json"
    real = [path for path in tmp_path.glob("weights/**/*") if path.is_file() and not path.is_symlink()]
    assert sum(path.stat().st_size for path in real) < 10_000
    assert list(tmp_path.glob("weights/.*")) == []


def test_a_model_of_the_hub(hub, model):
    weights = Path(weights_of("someone/tiny"))
    manifest = EngineDirectory(weights).manifest
    assert manifest is not None
    assert (manifest.model, manifest.revision) == ("someone/tiny", hub.repositories["someone/tiny"].commit)
    assert (weights / "engine/model.safetensors").stat().st_size == (
        model / "model.safetensors"
    ).stat().st_size
    hub.requests.clear()
    assert weights_of("someone/tiny@main") != str(weights)  # another config
    assert hub.file_requests() == []


def test_the_same_is_the_same_folder(model):
    assert weights_of(str(model)) == weights_of(str(model))
    first = weights_of(str(model))
    (model / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert weights_of(str(model)) != first


def test_a_model_in_a_tar_is_fetched_once(model, tmp_path):
    (tmp_path / "web").mkdir()
    shutil.make_archive(str(tmp_path / "web/tiny"), "tar", model)
    with folder_server(tmp_path / "web") as server:
        (tmp_path / "c.yaml").write_text(f"engine: vllm\nmodel: {server.url}/tiny.tar\n")
        first = weights_of(str(tmp_path / "c.yaml"))
    assert weights_of(str(tmp_path / "c.yaml")) == first
    large = list((tmp_path / "weights").rglob("model.safetensors"))
    assert len([path for path in large if not path.is_symlink()]) == 1


def test_a_tar_that_is_no_model_is_not_kept(model, tmp_path):
    (tmp_path / "web").mkdir()
    with folder_server(tmp_path / "web") as server:
        (tmp_path / "c.yaml").write_text(f"engine: vllm\nmodel: {server.url}/tiny.tar\n")
        (model / "tokenizer.json").rename(tmp_path / "tokenizer.json")
        shutil.make_archive(str(tmp_path / "web/tiny"), "tar", model)
        with pytest.raises(ModelFilesMissing, match=r"tokenizer\.json"):
            weights_of(str(tmp_path / "c.yaml"))
        (tmp_path / "tokenizer.json").rename(model / "tokenizer.json")
        whole = (model / "model.safetensors").read_bytes()
        (model / "model.safetensors").write_bytes(whole[:-1])
        shutil.make_archive(str(tmp_path / "web/tiny"), "tar", model)
        with pytest.raises(CheckpointInvalid, match=r"model\.safetensors is damaged"):
            weights_of(str(tmp_path / "c.yaml"))
        (model / "model.safetensors").write_bytes(whole)
        shutil.make_archive(str(tmp_path / "web/tiny"), "tar", model)
        weights_of(str(tmp_path / "c.yaml"))


def test_a_tokenizer_that_is_made_gives_the_same_folder(model, tmp_path, monkeypatch):
    def run(_self, build, _progress):
        made = build.model_dir
        made.mkdir()
        for file in model.iterdir():
            (made / file.name).symlink_to(file)
        (made / "tokenizer.json").unlink()
        (made / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        build.model = replace(build.model, path=made)

    monkeypatch.setattr(MakeTokenizer, "run", run)
    assert weights_of(str(model)) == weights_of(str(model))


def test_a_config_says_how(model, tmp_path):
    (tmp_path / "c.yaml").write_text(
        "engine: vllm\nmodel: ./published\nmax_model_len: 512\nengine_args: {max_num_seqs: 4}\n"
    )
    assert arguments(weights_of(str(tmp_path / "c.yaml"))) == {
        "max_model_len": 512,
        "max_num_seqs": 4,
        "tensor_parallel_size": 1,
    }


def test_a_revision_that_is_none_is_refused_before_the_hub_is_asked(hub):
    with pytest.raises(ModelNotFound, match="its revision must be a commit, or a name that Git allows"):
        weights_of("someone/tiny@refs/../../../x")
    assert hub.requests == []


def test_a_config_of_another_engine_needs_a_build(tmp_path):
    (tmp_path / "c.yaml").write_text("engine: mock\n")
    with pytest.raises(ConfigInvalid, match=r"build an engine\.tar"):
        weights_of(str(tmp_path / "c.yaml"))


@pytest.mark.parametrize(
    "source",
    [
        *("engine.tar", "out/engine.tar", "https://a.example/engine.tar", "file:///engine.tar"),
        *("data:,x", "a/b/c", "a/" + 5000 * "b"),
    ],
)
def test_all_else_is_the_path_or_url_of_an_engine(source):
    assert weights_of(source) == source


def test_an_unpacked_engine_is_left_alone(tmp_path):
    (tmp_path / "config.json").write_text('{"pretrained_config": {}, "build_config": {}}')
    assert weights_of(str(tmp_path)) == str(tmp_path)


def test_a_model_that_there_is_not(hub):
    with pytest.raises(ModelNotFound):
        weights_of("someone/else")


def test_a_folder_without_weights(model):
    (model / "model.safetensors").unlink()
    with pytest.raises(ModelFilesMissing):
        weights_of(str(model))


def test_an_image_without_vllm_says_so_before_anything_is_fetched(hub, model, load):
    told = r'"vllm" is needed for someone/tiny, which is not a file or folder here, and is taken for a model'
    with pytest.raises(EngineKindMismatch, match=told):
        load("someone/tiny", engines=["ctranslate2"])
    assert hub.requests == []


def test_an_image_without_vllm_says_that_a_folder_holds_a_model_and_no_engine(model, load):
    with pytest.raises(
        EngineKindMismatch, match=f"for {model}, which holds a model, not an engine; .* or build"
    ):
        load(model, engines=["ctranslate2"])


@pytest.mark.parametrize("name", ["configs/llama.yaml", "engines/llama.tar.zst", "./llama", "../llama"])
def test_a_file_that_is_missing_is_no_model_of_the_hub(hub, name):
    assert weights_of(name) == name
    assert hub.requests == []
