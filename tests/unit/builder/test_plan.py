from builder.plan import make_plan
from shared.config import load_config


def plan(text):
    return make_plan(load_config(text, "test"))


def test_ctranslate2():
    download, tokenizer, convert, package = plan(
        "{engine: ctranslate2, model: a/b, revision: v1, quantization: int8}"
    ).steps
    assert (download.model, download.revision, download.weights) == ("a/b", "v1", ("safetensors",))
    assert tokenizer.name == "tokenizer"
    assert (convert.engine, convert.quantization) == ("ctranslate2", "int8")
    assert (package.engine, package.config["quantization"]) == ("ctranslate2", "int8")


def test_mock_needs_no_model():
    assert [step.name for step in plan("engine: mock").steps] == ["mock", "package"]


def test_mock_takes_a_tokenizer_only():
    steps = plan("{engine: mock, model: a/b}").steps
    assert [step.name for step in steps] == ["download", "tokenizer", "mock", "package"]
    assert not steps[0].weights


def test_package_keeps_the_effective_config():
    assert plan("engine: mock").steps[-1].config["max_seq_len"] == 4096


def test_tensorrt_llm():
    download, _, *tools, describe, package = plan(
        "{engine: tensorrt_llm, model: a/b, quantization: fp8}"
    ).steps
    assert (download.model, download.weights) == ("a/b", ("safetensors", "bin"))
    assert [step.name for step in tools] == ["quantize", "build"]
    assert describe.name == "describe"
    assert package.config["quantization"] == "fp8"


def test_cog_trt_llm():
    steps = plan("{model_id: a/b, example_name: gpt, build: {executable: trtllm-build, output_dir: e}}").steps
    names = [step.name for step in steps]
    assert names == ["download", "tokenizer", "convert_to_ft", "build", "describe", "package"]
    assert steps[-1].engine == "tensorrt_llm"


def test_vllm():
    download, tokenizer, take, package = plan(
        "{engine: vllm, model: a/b, tensor_parallel_size: 4, pipeline_parallel_size: 2}"
    ).steps
    assert download.weights == ("safetensors", "gptq", "bin")
    assert "hf_quant_config.json" in download.more
    assert (tokenizer.name, take.gpus, take.code) == ("tokenizer", 8, False)
    assert package.config["tensor_parallel_size"] == 4


def test_vllm_with_a_model_that_drafts():
    config = "{engine: vllm, model: a/b, speculative_config: {model: a/draft, revision: v1}}"
    assert [step.name for step in plan(config).steps] == [
        "download",
        "tokenizer",
        "download draft",
        "take the model",
        "package",
    ]
    draft = plan(config).steps[2].download
    assert (draft.model, draft.revision) == ("a/draft", "v1")
