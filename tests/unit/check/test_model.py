"""A model that is a folder, as the check of a config in a file sees it."""

import json

import pytest

from builder.check.source import check_source
from tests.support.weights import safetensors

FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Its path from here, which is not where its own paths count from."""
    folder = tmp_path / "configs/models/tiny"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text("{}")
    config = tmp_path / "configs/config.yaml"
    config.write_text("engine: ctranslate2\nmodel: models/tiny\n")
    monkeypatch.chdir(tmp_path)
    return config


def found(config, source="configs/config.yaml"):
    return [(one.code, one.line, one.key) for one in check_source(source.format(config)).diagnostics]


@pytest.mark.parametrize("source", ["configs/config.yaml", "{}", "file://{}"])
@pytest.mark.parametrize("model", ["models/tiny", "./models/tiny", "../configs/models/tiny"])
def test_a_folder_beside_the_config(config, source, model):
    config.write_text(f"engine: ctranslate2\nmodel: {model}\n")
    report = check_source(source.format(config))
    assert report.diagnostics == ()
    assert report.folder == config.parent


@pytest.mark.parametrize("files", [("tekken.json",), ("tokenizer.model",), ("vocab.json", "merges.txt")])
def test_a_tokenizer_that_has_to_be_made(config, files):
    folder = config.parent / "models/tiny"
    (folder / "tokenizer.json").unlink()
    for name in files:
        (folder / name).touch()
    assert found(config) == [("E3032", 2, "model")]
    [told] = check_source(str(config)).diagnostics
    assert told.severity == "warning"
    assert " and ".join(files) in told.what
    (folder / files[-1]).unlink()
    assert found(config) == [("E3104", 2, "model")]


@pytest.mark.parametrize("missing", FILES)
def test_a_file_that_the_build_needs_is_missing(config, missing):
    (config.parent / "models/tiny" / missing).unlink()
    assert found(config) == [("E3104", 2, "model")]


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json", "tokenizer_config.json"])
def test_a_chat_template_that_is_not_valid(config, name):
    """Only a runner said so, when it started with the finished engine."""
    text = "{% for m in messages %}{{ m.content }}"
    (config.parent / "models/tiny" / name).write_text(
        text if name.endswith("jinja") else json.dumps({"chat_template": text})
    )
    assert found(config) == [("E3201", 2, "model")]
    [told] = check_source(str(config)).diagnostics
    assert "its chat template is not valid: Unexpected end of template" in told.what


def test_a_draft_model_is_looked_at_too(config):
    text = "engine: vllm\nmodel: models/tiny\nspeculative_config:\n  num_speculative_tokens: 2\n  model: "
    (config.parent / "models/tiny/model.safetensors").write_bytes(safetensors())
    config.write_text(f"{text}./models/none\n")
    assert found(config) == [("E3107", 5, "speculative_config.model")]
    (config.parent / "models/draft").mkdir()
    config.write_text(f"{text}models/draft\n")
    assert found(config) == [("E3104", 5, "speculative_config.model")]
    (config.parent / "models/draft/config.json").write_text("{}")  # the large one's tokenizer serves both
    (config.parent / "models/draft/model.safetensors").write_bytes(safetensors()[:-1])
    assert found(config) == [("E3201", 5, "speculative_config.model")]
    (config.parent / "models/draft/model.safetensors").write_bytes(safetensors())
    assert found(config) == []


def test_a_folder_has_no_revisions(config):
    config.write_text("engine: ctranslate2\nmodel: models/tiny\nrevision: main\n")
    assert found(config) == [("E3102", 2, "model")]


def test_a_folder_that_is_not_there(config):
    config.write_text("engine: ctranslate2\nmodel: ./tiny\n")
    assert found(config) == [("E3107", 2, "model")]


def test_the_folder_of_the_config_that_an_official_one_names(config):
    official = config.parents[1] / "official.yaml"
    official.write_text("build: {config: configs/config.yaml}\ninstantiate: {system_prompt: Be brief.}\n")
    assert check_source(str(official)).folder == config.parent
