from pathlib import Path

import pytest
from huggingface_hub import constants

from builder.step import Build
from tests.support.hub import Hub, Repository
from tests.support.weights import safetensors

FILES = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}',
    "generation_config.json": b'{"eos_token_id": 2}',
    "model.safetensors": safetensors((1 << 20) - 81),
}


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "published"
    directory.mkdir()
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.fixture
def hub(tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch):
    """A hub with the model `someone/tiny`, in the place of the real one, and an empty cache."""
    with Hub() as hub:
        # The library reads its environment once, when it is imported.
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        hub.repositories["someone/tiny"] = Repository(model_dir)
        yield hub


@pytest.fixture
def state(tmp_path: Path) -> Build:
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    return Build(work_dir, tmp_path / "engine.tar", None)
