"""`cog-triton check` of what `cog-triton serve` takes besides a config."""

import json
import shutil

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner

from builder.pipeline import build
from cli.main import app
from shared.layout import PROJECT_ROOT
from tests.support.hub import Hub, Repository


def check(source, *options):
    result = CliRunner().invoke(app, ["check", str(source), *options])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(PROJECT_ROOT / "demo/model", tmp_path / "model")


@pytest.fixture
def repository(tmp_path, model):
    folder = tmp_path / "models/tiny"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("backend: 'vllm'\n")
    (folder / "1/model.json").write_text(json.dumps({"model": str(model), "max_num_seqs": 4}))
    return folder.parent


def test_a_folder_with_a_model(model):
    exit_code, output = check(model)
    assert exit_code == 0
    assert output.endswith(f"{model}: 0 errors, 0 warnings\n")
    (model / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    exit_code, output = check(model)
    assert exit_code == 1
    assert "tokenizer.json is a Git LFS pointer" in output


@pytest.mark.parametrize("place", [".", "tiny", "tiny/1/model.json"])
def test_a_model_repository(repository, place):
    assert check(repository / place)[0] == 0
    (repository / "tiny/1/model.json").write_text('{"model": "a/b", "max_num_seqs": 0, "download_dir": "/x"}')
    exit_code, output = check(repository / place)
    assert exit_code == 1
    assert "E3008" in output
    assert "E3039" in output


def test_a_model_repository_that_cannot_be_served(repository):
    (repository / "tiny/1/model.json").write_text("[]")
    exit_code, output = check(repository)
    assert exit_code == 1
    assert "model.json is not a JSON object" in output


def test_a_model_on_the_hub(tmp_path, model, monkeypatch):
    with Hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        hub.repositories["someone/tiny"] = Repository(model)
        assert check("someone/tiny")[0] == 0
        exit_code, output = check("someone/other")
        assert exit_code == 1
        assert "E3100" in output
        assert "E3102" in check("someone/tiny@nowhere")[1]


def test_an_engine(tmp_path):
    (tmp_path / "config.yaml").write_text("engine: mock\n")
    build(str(tmp_path / "config.yaml"), tmp_path / "engine.tar")
    assert check(tmp_path / "engine.tar") == (
        0,
        f"{tmp_path}/engine.tar: 0 errors, 0 warnings, nothing to build\n",
    )
    (tmp_path / "engine.tar").write_bytes(b"no tar")
    exit_code, output = check(tmp_path / "engine.tar")
    assert exit_code == 1
    assert "error: E4" in output


@pytest.mark.parametrize("source", ["", "/", "/model.json", "/nowhere.tar", "a/b/c"])
def test_what_is_not_there(source):
    exit_code, output = check(source)
    assert exit_code == 1
    assert ": error: E" in output
