"""What the tests of COG_WEIGHTS need: a hub, a model, and an installation with vLLM."""

import json
import os
from pathlib import Path

import pytest

from cli.engines import engine_of
from runner.engines.vllm.settings import engine_arguments
from runner.settings import Settings
from tests.unit.builder.conftest import hub, model_dir
from tests.unit.builder.test_vllm import TOKENIZER

__all__ = ["hub", "model_dir"]


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


def weights_of(source: str) -> str:
    return engine_of(source, Settings.from_environment(os.environ), lambda _: None)


def arguments(weights: str):
    made = engine_arguments(Path(weights))
    return {
        name: value
        for name, value in made.items()
        if name
        not in (
            "model",
            "skip_tokenizer_init",
            "language_model_only",
            "gdn_prefill_backend",
            "structured_outputs_config",
            "dtype",
            "pipeline_parallel_size",
        )
    }
