"""A model repository of Triton's vLLM backend in COG_WEIGHTS, and what a runner gets for it."""

import json
from pathlib import Path

import pytest

from runner.engines.vllm.settings import engine_arguments
from shared.artifact import EngineDirectory
from shared.errors import (
    VllmRepositoryInvalid,
    WeightsUnreachable,
)
from shared.logs import configure_logging
from shared.lora import CONFIG, WEIGHTS
from tests.unit.cli.engines.conftest import arguments, weights_of

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

    @pytest.mark.parametrize(
        "text",
        [
            "name: 'llama3-70b'\nbackend: 'vllm'\n",
            'backend:"vllm";max_batch_size:0',
            '{backend}: "vllm"'.format(backend="name: 'x' backend"),
            'backend: "vl" "lm"',
            'input { name: "a" } backend: "\\166llm" # the end',
            'backend: "vllm" field_of_a_newer_triton: 1',
        ],
    )
    def test_every_form_of_the_text_format_is_read(self, repository, text):
        path = repository(max_num_seqs=4) / "llama3-70b"
        (path / "config.pbtxt").write_text(text)
        assert arguments(weights_of(str(path)))["max_num_seqs"] == 4

    @pytest.mark.parametrize(
        "text", ['# backend: "vllm"', 'name: "a\\nbackend: \\"vllm\\""', 'input { name: "vllm" }']
    )
    def test_the_word_alone_makes_no_model_of_vllm(self, repository, text):
        path = repository() / "llama3-70b"
        (path / "config.pbtxt").write_text(text)
        assert weights_of(str(path)) == str(path)

    def test_a_config_that_triton_cannot_read_either_is_told(self, repository):
        path = repository() / "llama3-70b"
        (path / "config.pbtxt").write_text('backend: "vllm"\ninstance_group [\n')
        with pytest.raises(VllmRepositoryInvalid, match=r"config\.pbtxt.*not protobuf's text format"):
            weights_of(str(path))

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
            ({"max_num_seq": 4}, "E3006 .* key 'max_num_seq' .*Write max_num_seqs"),
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
