"""What COG_WEIGHTS may name besides an engine.tar, and what a runner gets for it."""

import json
import os
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from builder.tokenizer.step import MakeTokenizer
from cli.engines import engine_of
from runner.engines.vllm.settings import engine_arguments
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
    VllmRepositoryInvalid,
    WeightsTooLargeForGpu,
    WeightsUnreachable,
)
from shared.logs import configure_logging
from shared.lora import CONFIG, WEIGHTS
from tests.support.loopback import folder_server
from tests.unit.builder.conftest import hub, model_dir
from tests.unit.builder.test_vllm import TOKENIZER

__all__ = ["hub", "model_dir"]

CONFIG_PBTXT = """\
# Note: You do not need to change any fields in this configuration.
backend: "vllm"
instance_group [
  {
    count: 1
    kind: KIND_MODEL
  }
]
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An installation with vLLM, and a cache of its own."""
    python = tmp_path / "home/engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WEIGHTS_CACHE", str(tmp_path / "weights"))
    return tmp_path / "home"


@pytest.fixture
def model(model_dir):
    (model_dir / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return model_dir


@pytest.fixture
def repository(tmp_path, model):
    """As in Triton's tutorial."""

    def repository(name="llama3-70b", version="1", **arguments) -> Path:
        folder = tmp_path / "model_repository" / name
        (folder / version).mkdir(parents=True)
        (folder / "config.pbtxt").write_text(CONFIG_PBTXT)
        text = json.dumps({"model": str(model), **arguments})
        (folder / version / "model.json").write_text(text)
        return tmp_path / "model_repository"

    return repository


def write_weights(model: Path, dtype: str, mib: int) -> None:
    """So many MiB in a file as safetensors writes it."""
    width = {"F32": 4, "BF16": 2}[dtype]
    tensor = {"dtype": dtype, "shape": [(mib << 20) // width], "data_offsets": [0, mib << 20]}
    header = json.dumps({"a": tensor}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(mib << 20)
    (model / "model.safetensors").write_bytes(content)


def weights_of(source: str) -> str:
    return engine_of(source, Settings.from_environment(os.environ), lambda _: None)


def arguments(weights: str):
    made = engine_arguments(Path(weights))
    return {
        name: value
        for name, value in made.items()
        if name not in ("model", "skip_tokenizer_init", "dtype", "pipeline_parallel_size")
    }


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
    with pytest.raises(ConfigInvalid, match="its revision must be the name of a branch"):
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
    with pytest.raises(EngineKindMismatch):
        load("someone/tiny", engines=["ctranslate2"])
    assert hub.requests == []


class TestRepositoriesOfTriton:
    def test_the_tutorials(self, repository):
        made = repository(gpu_memory_utilization=0.85, tensor_parallel_size=4, disable_log_requests="true")
        weights = weights_of(str(made))
        assert arguments(weights) == {"gpu_memory_utilization": 0.85, "tensor_parallel_size": 4}
        assert EngineDirectory(Path(weights)).config["triton_model"] == "llama3-70b"

    def test_removed_keys_are_warnings_with_their_successors(self, repository, capsys):
        configure_logging()
        weights_of(str(repository(swap_space=4, max_seq_len_to_capture=4096, num_lookahead_slots=4)))
        told = capsys.readouterr().err
        assert (
            "no longer has the engine argument swap_space; it is left out. Write kv_offloading_size" in told
        )
        assert "max_seq_len_to_capture; it is left out. Remove it." in told
        assert "Write speculative_config: {num_speculative_tokens: ...} in its place" in told

    def test_truth_as_text_and_old_types(self, repository):
        made = repository(dtype="half", enforce_eager="true", trust_remote_code="false", max_model_len=512)
        weights = weights_of(str(made))
        assert arguments(weights)["enforce_eager"] is True
        assert engine_arguments(Path(weights))["dtype"] == "float16"

    def test_the_model_itself_may_be_named(self, repository):
        path = repository(max_num_seqs=4) / "llama3-70b"
        assert arguments(weights_of(str(path)))["max_num_seqs"] == 4

    def test_the_newest_version_is_served(self, repository):
        repository(max_num_seqs=4)
        made = repository(name="llama3-70b", version="2", max_num_seqs=5)
        assert arguments(weights_of(str(made)))["max_num_seqs"] == 5

    def test_paths_count_from_model_json(self, repository, model):
        made = repository()
        (made / "llama3-70b/1/weights").symlink_to(model)
        (made / "llama3-70b/1/model.json").write_text('{"model": "./weights"}')
        assert (
            Path(weights_of(str(made))) / "engine/model.safetensors"
        ).resolve() == model / "model.safetensors"

    def test_one_of_several_has_to_be_named(self, repository):
        repository(name="a")
        made = repository(name="b")
        with pytest.raises(
            VllmRepositoryInvalid, match=r"it has 2 models.* Choose one of them, such as .*/a\."
        ):
            weights_of(str(made))

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"trust_remote_code": True}, "E3033 .*ALLOW_MODEL_CODE=1"),
            ({"worker_cls": "my.Worker"}, "E3033"),
            ({"max_num_seq": 4}, "E3006 .*Write max_num_seqs"),
            ({"gpu_memory_utilization": "much"}, "E3008 .*must be a number above 0"),
            ({"tensor_parallel_size": "4"}, "tensor_parallel_size must be a whole number"),
        ],
    )
    def test_what_cannot_be_set(self, repository, arguments, told):
        with pytest.raises(VllmRepositoryInvalid, match=told):
            weights_of(str(repository(**arguments)))

    @pytest.mark.parametrize("name", ["my model", "a" * 129])
    def test_a_folder_whose_name_no_model_of_triton_may_have(self, repository, name):
        with pytest.raises(VllmRepositoryInvalid, match=f"{name} .*Rename that folder"):
            weights_of(str(repository(name=name)))

    @pytest.mark.parametrize("text", ["[]", "{", ""])
    def test_a_model_json_that_is_none(self, repository, text):
        made = repository()
        (made / "llama3-70b/1/model.json").write_text(text)
        with pytest.raises(VllmRepositoryInvalid, match=r"model\.json"):
            weights_of(str(made))

    def test_what_this_user_may_not_read_is_named(self, repository, monkeypatch):
        made = repository()
        own = Path.iterdir

        def refused(path):
            if path.name == "llama3-70b":
                raise PermissionError(13, "Permission denied", str(path))
            return own(path)

        monkeypatch.setattr(Path, "iterdir", refused)
        with pytest.raises(
            WeightsUnreachable, match=r"llama3-70b cannot be read: this user has no permission to read it\."
        ):
            weights_of(str(made))

    def test_a_model_without_one(self, repository):
        made = repository()
        (made / "llama3-70b/1/model.json").unlink()
        with pytest.raises(VllmRepositoryInvalid, match=r"no 1/model\.json"):
            weights_of(str(made))


class TestAdaptersOfARepository:
    @pytest.fixture
    def with_adapters(self, repository, tmp_path):
        """Of the form that Triton's backend reads; `places` by name."""

        def made(places=None, enable_lora=True) -> Path:
            folder = tmp_path / "loras/law"
            folder.mkdir(parents=True)
            for name in (CONFIG, WEIGHTS):
                (folder / name).write_text("{}")
            path = repository(enable_lora=enable_lora)
            told = {"law": str(folder), "too": "../../../loras/law"} if places is None else places
            text = told if isinstance(told, str) else json.dumps(told)
            (path / "llama3-70b/1/multi_lora.json").write_text(text)
            return path

        return made

    def test_are_links_in_the_engine(self, with_adapters, tmp_path):
        adapters = EngineDirectory(Path(weights_of(str(with_adapters())))).adapters or Path()
        assert sorted(path.name for path in adapters.iterdir()) == ["law", "too"]
        for part in (CONFIG, WEIGHTS):
            assert (adapters / "too" / part).resolve() == tmp_path / "loras/law" / part

    def test_truth_may_be_text(self, with_adapters):
        assert EngineDirectory(Path(weights_of(str(with_adapters(enable_lora="true"))))).adapters

    def test_are_not_there_unless_lora_is_enabled(self, with_adapters):
        assert EngineDirectory(Path(weights_of(str(with_adapters(enable_lora=False))))).adapters is None

    @pytest.mark.parametrize(
        ("places", "told"),
        [
            ("[]", "multi_lora"),
            ("{", "multi_lora"),
            ({"law": 1}, "'law' is not an adapter's name"),
            ({"../law": "."}, "'../law' is not an adapter's name"),
            ({".": "."}, r"'\.' is not an adapter's name"),
            ({"law": "nowhere"}, "no adapter_config.json in .*nowhere, the folder of law"),
        ],
    )
    def test_what_is_none_is_refused(self, with_adapters, places, told):
        with pytest.raises(VllmRepositoryInvalid, match=told):
            weights_of(str(with_adapters(places)))

    def test_come_from_one_place(self, with_adapters, tmp_path, monkeypatch):
        monkeypatch.setenv("LORA_FOLDER", str(tmp_path))
        with pytest.raises(VllmRepositoryInvalid, match="Unset LORA_FOLDER"):
            weights_of(str(with_adapters()))


def test_a_repository_of_another_user_is_left_to_what_reads_it(repository, monkeypatch):
    def refused(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    place = str(repository())
    monkeypatch.setattr(Path, "read_text", refused)  # root may read everything
    assert weights_of(place) == place


@pytest.mark.parametrize("name", ["configs/llama.yaml", "engines/llama.tar.zst", "./llama", "../llama"])
def test_a_file_that_is_missing_is_no_model_of_the_hub(hub, name):
    assert weights_of(name) == name
    assert hub.requests == []
