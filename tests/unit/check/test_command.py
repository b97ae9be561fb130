import json
import logging
import struct

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from builder.sources.parameters import why_unknown
from cli.main import app
from tests.support.hub import Hub, Repository


@pytest.fixture
def run(tmp_path):
    def run(text: str, *options: str):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return CliRunner().invoke(app, ["check", str(path), *options])

    return run


@pytest.fixture
def model(tmp_path):
    header = json.dumps({"a": {"dtype": "F16", "shape": [1000], "data_offsets": [0, 2000]}}).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(2000)
    (tmp_path / "model").mkdir()
    (tmp_path / "model/model.safetensors").write_bytes(content)
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("{}")
    return tmp_path / "model"


def test_errors_are_listed_and_counted(run):
    result = run("engine: tensorrt_llm\nmodel: a/b\ndtype: x\nmax_seq_len: 99999\n")
    assert result.exit_code == 1
    first, second, summary = result.output.splitlines()
    assert ":3:1: error: E3008 " in first
    assert ":4:1: warning: E3028 " in second
    assert summary.endswith("config.yaml: 1 error, 1 warning")


def test_a_clean_config_and_what_its_build_takes(run, model):
    result = run(f"engine: tensorrt_llm\nmodel: {model}\n")
    assert result.exit_code == 0
    assert "1000 parameters; roughly " in result.output
    assert "0 errors, 0 warnings" in result.output


def test_a_model_without_readable_headers_has_no_estimate(run, model):
    (model / "model.safetensors").write_bytes(b"x")
    result = run("engine: tensorrt_llm\nmodel: model\n")
    told, summary = result.output.splitlines()
    reason = "a safetensors file of the model has no header that can be read"
    assert told.endswith(f"config.yaml: memory was not estimated: {reason}")
    assert (result.exit_code, summary[-22:]) == (0, ": 0 errors, 0 warnings")
    told = json.loads(run("engine: tensorrt_llm\nmodel: model\n", "--json").output)
    assert (told["estimate"], told["not_estimated"]) == (None, reason)


@pytest.mark.parametrize(
    ("engine", "source", "files", "reason"),
    [
        ("vllm", "http://127.0.0.1:9/model.tar", {}, "only a build reads what is in a tar"),
        ("vllm", "model", {"pytorch_model.bin": "x"}, "and the model has neither"),
    ],
)
def test_why_there_is_no_estimate_is_told(run, model, engine, source, files, reason):
    (model / "model.safetensors").unlink()
    for name, content in files.items():
        (model / name).write_text(content)
    result = run(f"engine: {engine}\nmodel: {source}\n", "--gpu", "A10")
    assert result.exit_code == 0
    told = result.output.splitlines()[-2]
    assert "config.yaml: memory was not estimated: " in told
    assert told.endswith(reason)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            FileNotFoundError(2, "No such file", "/x/model-1.safetensors"),
            "the model has no model-1.safetensors",
        ),
        (ValueError("/x"), "the headers of the model's safetensors files could not be read"),
    ],
)
def test_why_headers_cannot_be_read_has_no_path(error, reason):
    assert why_unknown(error) == reason


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        ('{"weight_map": {"a": "model-1.safetensors"}}', "it has no model-1.safetensors, which model."),
        ("{", "is not JSON"),
    ],
)
@pytest.mark.parametrize("engine", ["ctranslate2", "tensorrt_llm", "vllm"])
def test_an_index_that_cannot_be_followed_is_an_error_of_every_engine(run, model, engine, index, reason):
    (model / "model.safetensors").unlink()
    (model / "model.safetensors.index.json").write_text(index)
    result = run(f"engine: {engine}\nmodel: model\n")
    assert result.exit_code == 1
    assert "error: E3201 " in result.output
    assert reason in result.output


@pytest.mark.parametrize("engine", ["ctranslate2", "tensorrt_llm", "vllm"])
def test_an_index_that_was_left_behind_does_not_matter_to_transformers(run, model, engine):
    """With which TensorRT-LLM's tools read weights: it prefers a whole file."""
    (model / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    result = run(f"engine: {engine}\nmodel: model\n")
    assert ("error: E3201 " in result.output) is (engine != "tensorrt_llm"), result.output


def test_a_file_for_an_image_is_no_error_and_builds_nothing(run):
    result = run("instantiate: {}\n")
    assert result.exit_code == 0
    assert result.output.endswith("config.yaml: 0 errors, 0 warnings, nothing to build\n")


def test_json(run, model):
    result = run(f"engine: tensorrt_llm\nmodel: {model}\ntensor_parallel_size: 4\n", "--json", "--gpus", "1")
    report = json.loads(result.output)
    assert result.exit_code == 0
    assert [(one["code"], one["line"]) for one in report["diagnostics"]] == [("E3029", 3)]
    assert report["estimate"]["parameters"] == 1000


def test_json_of_what_cannot_be_read():
    result = CliRunner().invoke(app, ["check", "none.yaml", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output)["diagnostics"][0]["code"] == "E3000"


def test_other_engines_have_no_estimate(run):
    assert "0 errors, 0 warnings" in run("engine: mock\n").output


class TestOnTheHub:
    """The list of a model's files says what a build would do."""

    @pytest.fixture
    def files(self, tmp_path, monkeypatch):
        published = tmp_path / "published"
        published.mkdir()
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            (published / name).write_text("{}")
        with Hub() as hub:
            monkeypatch.setattr(constants, "ENDPOINT", hub.url)
            hub.repositories["someone/tiny"] = Repository(published)
            yield published

    def test_the_headers_cannot_be_fetched(self, run, files):
        told = run("engine: vllm\nmodel: someone/tiny\n", "--gpu", "A10").stdout.splitlines()
        assert "config.yaml: memory was not estimated: " in told[-2]

    def codes(self, run, model="someone/tiny"):
        result = run(f"engine: ctranslate2\nmodel: {model}\n", "--json")
        return result.exit_code, [one["code"] for one in json.loads(result.stdout)["diagnostics"]]

    def test_all_is_there(self, run, files):
        assert self.codes(run) == (0, [])

    def test_a_tokenizer_is_made(self, run, files):
        (files / "tokenizer.json").rename(files / "tokenizer.model")
        assert self.codes(run) == (0, ["E3032"])

    def test_a_tokenizer_is_missing(self, run, files):
        (files / "tokenizer.json").unlink()
        assert self.codes(run) == (1, ["E3104"])

    def test_the_model_is_not_known(self, run, files):
        assert self.codes(run, "someone/nobody") == (1, ["E3100"])

    @pytest.mark.parametrize("engine", ["ctranslate2", "vllm"])
    def test_the_hub_is_not_reached(self, run, engine, monkeypatch, caplog):
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)
        assert self.codes(run) == (0, [])
        told = run(f"engine: {engine}\nmodel: someone/tiny\n").stdout.splitlines()
        assert told[-2].endswith("config.yaml: the model's files were not checked: no connection to the hub")
        assert told[-1].endswith("config.yaml: 0 errors, 0 warnings")
        assert caplog.records == []  # the library's complaints about each of its attempts
