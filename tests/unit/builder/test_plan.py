import pytest

from builder.plan import make_plan
from shared.config import load_config
from shared.errors import EngineNotInImage


def plan(text):
    return make_plan(load_config(text, "test"))


def test_ctranslate2():
    download, convert, package = plan(
        "{engine: ctranslate2, model: a/b, revision: v1, quantization: int8}"
    ).steps
    assert (download.model, download.revision, download.weights) == ("a/b", "v1", ("safetensors",))
    assert (convert.engine, convert.quantization) == ("ctranslate2", "int8")
    assert (package.engine, package.config["quantization"]) == ("ctranslate2", "int8")


def test_mock_needs_no_model():
    assert [step.name for step in plan("engine: mock").steps] == ["mock", "package"]


def test_mock_takes_a_tokenizer_only():
    steps = plan("{engine: mock, model: a/b}").steps
    assert [step.name for step in steps] == ["download", "mock", "package"]
    assert not steps[0].weights


def test_package_keeps_the_effective_config():
    assert plan("engine: mock").steps[-1].config["max_seq_len"] == 4096


@pytest.mark.parametrize("engine", ["tensorrt_llm", "vllm"])
def test_engines_of_other_images(engine):
    with pytest.raises(EngineNotInImage, match="it has: ctranslate2, mock"):
        plan(f"{{engine: {engine}, model: a/b}}")
