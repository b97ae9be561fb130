"""What vLLM takes of a GPU, against models and GPUs that people have."""

import json
import math
import re
import shutil
import struct

import pytest
from typer.testing import CliRunner

from builder.check.report import check
from builder.check.vllm_memory import check_division, check_memory, memory_of
from builder.findings import Findings
from cli.main import app
from shared.config import load_config
from shared.layout import PROJECT_ROOT
from tests.unit.check.test_kv_cache import KEEP_ALL, layers

EXAMPLES = sorted((PROJECT_ROOT / "examples/vllm").glob("*.yaml"))
LLAMA_70B = {
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_size": 8192,
    "intermediate_size": 28672, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B = LLAMA_70B | {
    "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 131072,
}  # fmt: skip
# Parameters by type, and config.json, as the examples' models are published.
MODELS = {
    "llama-3-70b-instruct-4gpu": ({"BF16": 70_553_706_496}, LLAMA_70B),
    "mixtral-8x7b-instruct-gptq": (
        {"I32": 5_910_000_000, "F16": 290_000_000},
        LLAMA_8B | {"vocab_size": 32000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16"},
    ),
    "qwen3-32b-fp8-1gpu": (
        {"F8_E4M3": 31_200_000_000, "BF16": 1_560_000_000},
        LLAMA_70B
        | {
            "num_hidden_layers": 64, "hidden_size": 5120, "head_dim": 128, "intermediate_size": 25600,
            "vocab_size": 151936, "max_position_embeddings": 40960,
        },
    ),
    "qwen2.5-1.5b-instruct-a10": (
        {"BF16": 1_543_714_304},
        LLAMA_70B
        | {
            "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_size": 1536,
            "intermediate_size": 8960, "vocab_size": 151936, "max_position_embeddings": 32768,
        },
    ),
}  # fmt: skip


def config(text=""):
    return load_config(f"engine: vllm\nmodel: a/b\n{text}", "c")


def feasible(text, parameters, model) -> int:
    tokens = memory_of(config(text), parameters, model).feasible
    assert tokens is not None
    return tokens


def found(text, parameters, model):
    findings = Findings()
    made = config(text)
    check_memory(made, memory_of(made, parameters, model), model, findings)
    return [(one.severity.value, one.error.code, str(one.error)) for one in findings.found]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_clean_and_fits(path):
    report = check(path.read_text(), path.name)
    assert report.diagnostics == ()
    findings = Findings()
    parameters, model = MODELS[path.stem]
    memory = memory_of(report.config, parameters, model)
    check_memory(report.config, memory, model, findings)
    check_division(report.config, model, findings)
    assert findings.found == []
    assert (memory.feasible or 0) >= (memory.wanted or 0) > 0


def test_the_cache_of_a_token():
    """2 x 80 layers x 8 heads x 128 x 2 bytes, over the GPUs that share each layer or the layers."""
    for text, size in (
        ("", 327_680),
        ("tensor_parallel_size: 4", 81_920),
        ("tensor_parallel_size: 16", 40_960),  # no GPU has less than a head
        ("pipeline_parallel_size: 2", 163_840),
        ("engine_args: {kv_cache_dtype: fp8}", 163_840),
        ("dtype: float32", 655_360),
    ):
        assert memory_of(config(text), {}, LLAMA_70B).cache_per_token == size


def test_weights_that_are_quantized_while_they_are_loaded():
    published = {"BF16": 8_030_261_248}
    assert memory_of(config(), published, LLAMA_8B).weights == 16_060_522_496
    assert memory_of(config("quantization: fp8"), published, LLAMA_8B).weights == 8_030_261_248
    assert memory_of(config("quantization: fp8"), {"F8_E4M3": 1000}, LLAMA_8B).weights == 1000


def test_float32_is_loaded_in_16_bits_unless_it_is_asked_for():
    published = {"F32": 8_000_000_000}
    model = LLAMA_8B | {"torch_dtype": "float32"}
    assert memory_of(config(), published, model).weights == 16_000_000_000
    assert memory_of(config("dtype: float32"), published, model).weights == 32_000_000_000
    assert memory_of(config("dtype: float32"), {"BF16": 8}, model).weights == 32
    assert memory_of(config(), {}, model).cache_per_token == 131_072


def test_a_latent_cache_is_on_every_gpu():
    model = LLAMA_70B | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 61}
    assert memory_of(config("tensor_parallel_size: 8"), {}, model).cache_per_token == 61 * 576 * 2


def test_a_long_context_of_windows_is_not_refused():
    """gemma-3-27b-it has 131,072 tokens on one H100: ten of its 62 layers keep them all."""
    text = KEEP_ALL["gemma-3-27b"][0] | {
        "hidden_size": 5376, "intermediate_size": 21504, "vocab_size": 262208, "max_position_embeddings": 131072,
    }  # fmt: skip
    parameters = {"BF16": 27_432_406_640}
    assert found("gpu: H100", parameters, {"model_type": "gemma3", "text_config": text}) == []


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("kind", [{"type": "su"}, {"rope_type": "longrope"}])
def test_longrope_is_for_those_who_ask_for_it(place, kind):
    """Phi-3-mini-128k-instruct, for which vLLM takes 4,096 tokens by itself: 131,072 would not fit."""
    model = layers(32, 32, 96, hidden_size=3072, intermediate_size=8192, vocab_size=32064) | {
        "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, place: kind,
    }  # fmt: skip
    parameters = {"BF16": 3_821_079_552}
    assert found("gpu: L4", parameters, model) == []
    assert found("gpu: L4\nmax_model_len: 131072", parameters, model) != []
    assert memory_of(config(), parameters, model).wanted == 4096


def test_layers_with_a_window_have_room_for_that_alone():
    kinds = ["sliding_attention"] * 40 + ["full_attention"] * 40
    model = LLAMA_70B | {"layer_types": kinds, "sliding_window": 1024}
    text = "gpu: H200\nmax_model_len: 4096"
    half, whole = (memory_of(config(text), {}, one).cache_per_token for one in (model, LLAMA_70B))
    assert half * 2 == whole
    half, whole = (feasible(text, {"F8_E4M3": 70 * 10**9}, one) for one in (model, LLAMA_70B))
    assert half == pytest.approx(2 * whole - 1024, abs=32)


def test_a_model_that_also_sees():
    assert memory_of(config(), {}, {"text_config": LLAMA_70B}).cache_per_token == 327_680


@pytest.mark.parametrize(
    ("kind", "offered"),
    [("auto", True), ("bfloat16", True), ("fp8", False), ("fp8_e5m2", False), ("nvfp4", False)],
)
def test_a_smaller_cache_is_offered_if_there_is_one(kind, offered):
    text = f"gpu: H100\nengine_args: {{kv_cache_dtype: {kind}}}"
    ((_, code, told),) = found(text, {"F8_E4M3": 70 * 10**9}, LLAMA_70B | {"max_position_embeddings": 10**6})
    assert code == "E3036"
    assert told.endswith("larger GPUs, or set kv_cache_dtype: fp8 in engine_args.") == offered
    assert ("fp8" in told) == offered


def test_weights_that_do_not_fit():
    ((severity, code, text),) = found("gpu: H100", {"BF16": 70_553_706_496}, LLAMA_70B)
    assert (severity, code) == ("error", "E3035")
    assert "one H100 has" in text


@pytest.mark.parametrize(
    ("arguments", "parameters", "fix"),
    [
        ("gpu_memory_utilization: 0.01", 10**9, "Raise gpu_memory_utilization"),
        ("max_num_seqs: 1000000", 10**9, "Lower max_num_seqs"),
        ("max_num_batched_tokens: 10000000", 10**9, "Lower max_num_batched_tokens"),
        (
            "gpu_memory_utilization: 0.01, max_num_seqs: 1000000, max_num_batched_tokens: 1",
            10**9,
            "Raise gpu_memory_utilization and lower max_num_seqs",
        ),
        ("gpu_memory_utilization: 0.01, max_num_seqs: 1000000", 10**12, "Raise tensor_parallel_size"),
        ("gpu_memory_utilization: 0.95, max_num_seqs: 8", 10**12, "Raise tensor_parallel_size"),
    ],
)
def test_arguments_that_leave_no_room_for_the_weights_are_named(arguments, parameters, fix):
    ((_, code, text),) = found(f"gpu: H100\nengine_args: {{{arguments}}}", {"BF16": parameters}, LLAMA_8B)
    assert code == "E3035"
    assert text.endswith(f" for them and the cache. {fix}, or use a larger GPU or a quantized checkpoint.")


def test_a_share_of_the_gpu_means_nothing_where_the_size_of_the_cache_is_set():
    """vLLM ignores gpu_memory_utilization then; to raise it made no difference."""
    text = "gpu: H100\nmax_model_len: 1024\n"
    text += "engine_args: {gpu_memory_utilization: 0.01, kv_cache_memory_bytes: 1000000000}"
    assert found(text, {"BF16": 8_030_261_248}, LLAMA_8B) == []
    ((_, code, told),) = found(text, {"BF16": 42 * 10**9}, LLAMA_8B)
    assert code == "E3035"
    assert "gpu_memory_utilization" not in told


def test_the_feasible_length_is_told():
    ((severity, code, text),) = found("gpu: A10", {"BF16": 8_030_261_248}, LLAMA_8B)
    assert (severity, code) == ("error", "E3036")
    longest = feasible("gpu: A10", {"BF16": 8_030_261_248}, LLAMA_8B)
    assert 16384 < longest < 32768
    assert f"max_model_len to {longest} or less" in text
    assert found(f"gpu: A10\nmax_model_len: {longest}", {"BF16": 8_030_261_248}, LLAMA_8B) == []
    ((severity, code, _),) = found(
        f"gpu: A10\nmax_model_len: {longest + 100}", {"BF16": 8_030_261_248}, LLAMA_8B
    )
    assert (severity, code) == ("warning", "E3036")


def test_where_the_operator_has_set_the_size_of_the_cache_no_larger_gpu_is_proposed():
    """It made no difference."""
    text = f"gpu: A10\nengine_args: {{kv_cache_memory_bytes: {131072 * 16000}}}"
    ((_, code, told),) = found(text, {"BF16": 8_030_261_248}, LLAMA_8B)
    assert code == "E3036"
    ways = "raise kv_cache_memory_bytes, or use more GPUs, or set kv_cache_dtype: fp8 in engine_args."
    assert told.endswith(f" Set max_model_len to 16000 or less, or {ways}")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("gpu: A10", "Use a quantized checkpoint, or use more"),
        ("gpu: A10\nengine_args: {kv_cache_memory_bytes: 1}", "Raise kv_cache_memory_bytes, or use more"),
    ],
)
def test_where_no_token_fits_no_length_is_proposed(text, fix):
    usable = memory_of(config(text), {}, LLAMA_8B).usable
    assert usable is not None
    parameters = {"BF16": usable // 2}
    assert feasible(text, parameters, LLAMA_8B) == 0
    ((severity, code, told),) = found(text, parameters, LLAMA_8B)
    assert (severity, code) == ("error", "E3036")
    assert "has room for no tokens; one sequence may have 131072 tokens. " in told
    assert fix in told
    assert "max_model_len" not in told


def test_the_operators_own_sizes_count():
    text = f"gpu: H100\nengine_args: {{kv_cache_memory_bytes: {131072 * 1000}}}"
    assert feasible(text, {"BF16": 8_030_261_248}, LLAMA_8B) == 1000 // 16 * 16
    half, most = (
        feasible(f"gpu: H100\nengine_args: {{gpu_memory_utilization: {share}}}", {"BF16": 10**9}, LLAMA_8B)
        for share in (0.5, 0.9)
    )
    assert half < most


def test_a_model_that_does_not_tell_its_layers_is_not_refused():
    text = "gpu: A10\nmax_model_len: 1024"
    model = {"n_layer": 12, "n_head": 12, "n_embd": 768, "n_positions": 1024}
    assert found(text, {"F32": 137_022_720}, model) == []
    assert str(memory_of(config(text), {"F32": 137_022_720}, model)).endswith("is not known")
    assert str(memory_of(config(), {"F32": 137_022_720}, model)).endswith("is not known")
    assert [code for _, code, _ in found(text, {"F32": 10**11}, model)] == ["E3035"]


@pytest.mark.parametrize("size", [math.inf, math.nan, -3, 10**400, 1e308, True, "x", [], None])
@pytest.mark.parametrize("name", [*LLAMA_8B, "head_dim", "kv_lora_rank", "sliding_window", "layer_types"])
def test_a_config_that_no_model_has_is_no_reason_to_fail(name, size):
    model = LLAMA_8B | {"layer_types": ["sliding_attention"]} | {name: size}
    memory = memory_of(config("gpu: H100"), {"BF16": 10**9}, model)
    check_memory(config("gpu: H100"), memory, model, Findings())
    check_division(config("gpu: H100"), model, Findings())
    assert "-" not in str(memory)


def test_without_a_gpu_nothing_is_said_of_what_fits():
    assert found("", {"BF16": 10**12}, LLAMA_70B) == []
    assert "--gpu" in str(memory_of(config(), {"BF16": 10**9}, LLAMA_8B))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("tensor_parallel_size: 3", "E3037"),
        ("pipeline_parallel_size: 81", "E3037"),
        ("tensor_parallel_size: 8", None),
    ],
)
def test_how_the_model_is_spread(text, code):
    findings = Findings()
    check_division(config(text), LLAMA_70B, findings)
    assert [one.error.code for one in findings.found] == ([code] if code else [])


@pytest.mark.parametrize("model", [{}, {"num_hidden_layers": "x", "layer_types": [], "text_config": 3}])
def test_a_model_that_says_little_is_no_reason_to_fail(model):
    assert found("gpu: H100", {}, model) == []


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path):
        header = json.dumps({"a": {"dtype": "F16", "shape": [1000], "data_offsets": [0, 2000]}}).encode()
        (tmp_path / "model").mkdir()
        (tmp_path / "model/model.safetensors").write_bytes(
            struct.pack("<Q", len(header)) + header + bytes(2000)
        )
        (tmp_path / "model/config.json").write_text(json.dumps(LLAMA_8B))
        (tmp_path / "model/tokenizer.json").write_text("{}")

        def run(more="", *options, model="./model"):
            (tmp_path / "c.yaml").write_text(f"engine: vllm\nmodel: {model}\n{more}")
            return CliRunner().invoke(app, ["check", str(tmp_path / "c.yaml"), *options])

        return run

    def test_what_fits_is_told(self, run):
        result = run("gpu: H100\nmax_model_len: 8192")
        assert result.exit_code == 0, result.output
        assert "131.1 kB of KV cache for each token; H100 has room for " in result.output
        assert "sequences of 8192" in result.output

    def test_room_for_one_sequence(self, run):
        (room,) = re.findall(r"room for (\d+) tokens", run("gpu: H100").output)
        assert f", 1 sequence of {room}" in run(f"gpu: H100\nmax_model_len: {room}").output

    @pytest.mark.parametrize(
        ("more", "line", "code"),
        [
            ("pipeline_parallel_size: 33", 3, "E3037"),
            ("gpu: H100\nmax_model_len: 4000000", 4, "E3036"),
            ("engine_args: {gpu_memory_utilization: 0.01}\ngpu: L4", 2, "E3035"),
        ],
    )
    def test_findings_stand_where_the_config_has_their_cause(self, run, more, line, code):
        assert f"c.yaml:{line}:1: error: {code} " in run(more).output

    @pytest.mark.parametrize(
        ("model", "more", "told"),
        [
            ({}, "max_model_len: 131073", "must be at most 131072, the model's max_position_embeddings"),
            ({}, "max_model_len: 131072", None),
            (
                {},
                "max_model_len: 131073\nengine_args: {hf_overrides: {max_position_embeddings: 200000}}",
                None,
            ),
            ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "max_model_len: 200000", None),
            ({"rope_scaling": {"type": "linear", "factor": 4}}, "max_model_len: 200000", None),
            (
                {"rope_scaling": {"rope_type": "llama3", "factor": 8}},
                "max_model_len: 200000",
                "at most 131072",
            ),
            ({"rope_parameters": {"rope_type": "default"}}, "max_model_len: 200000", "at most 131072"),
            ({"rope_parameters": {"full": {"rope_type": "linear"}}}, "max_model_len: 200000", None),
            ({"model_max_length": 500000}, "max_model_len: 200000", None),
            ({"max_position_embeddings": "many"}, "max_model_len: 200000", None),
        ],
    )
    def test_a_context_that_the_model_does_not_have(self, run, tmp_path, model, more, told):
        (tmp_path / "model/config.json").write_text(json.dumps(LLAMA_8B | model))
        result = run(more)
        assert result.exit_code == (told is not None), result.output
        if told is not None:
            assert "c.yaml:3:1: error: E3008 " in result.output
            assert told in result.output

    @pytest.mark.parametrize(
        ("method", "reason"),
        [
            ("bitsandbytes", "its quant_method is bitsandbytes, which vLLM no longer supports"),
            ("torchao", "vLLM needs the package torchao, and the images lack it"),
        ],
    )
    @pytest.mark.parametrize("nested", [False, True])
    def test_weights_that_the_images_cannot_load(self, run, tmp_path, method, reason, nested):
        config = LLAMA_8B | {"quantization_config": {"quant_method": method}}
        (tmp_path / "model/config.json").write_text(json.dumps({"text_config": config} if nested else config))
        result = run()
        assert result.exit_code == 1
        assert "c.yaml:2:1: error: E3201 " in result.output
        assert reason in result.output

    @pytest.mark.parametrize("model", ["./model", "http://127.0.0.1:9/model.tar"])
    @pytest.mark.parametrize("method", ["bitsandbytes", "torchao", "awq"])
    def test_a_draft_model_that_needs_a_package_which_the_images_lack(self, run, tmp_path, model, method):
        draft = tmp_path / "draft"
        shutil.copytree(tmp_path / "model", draft)
        (draft / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method}}))
        result = run("speculative_config:\n  num_speculative_tokens: 2\n  model: ./draft", model=model)
        refused = "c.yaml:5:3: error: E3201 " in result.output
        assert (result.exit_code, refused) == ((0, False) if method == "awq" else (1, True)), result.output

    def test_a_draft_model_whose_config_changes_it_is_not_refused(self, run, tmp_path):
        shutil.copytree(tmp_path / "model", tmp_path / "draft")
        described = {"quantization_config": {"quant_method": "torchao"}}
        (tmp_path / "draft/config.json").write_text(json.dumps(described))
        speculation = "speculative_config: {num_speculative_tokens: 2, model: ./draft}"
        result = run(f"{speculation}\nengine_args: {{hf_overrides: {{quantization_config: null}}}}")
        assert result.exit_code == 0, result.output

    def test_the_option_comes_before_the_key(self, run):
        assert "A10 has room" in run("gpu: H100\nmax_model_len: 8192", "--gpu", "A10").output

    def test_a_gpu_that_is_not_known(self, run):
        result = run("", "--gpu", "H1000")
        assert result.exit_code == 1
        assert result.exception.code == "E3008"
        assert "did you mean H100" in str(result.exception)

    def test_json(self, run):
        told = json.loads(run("gpu: A10", "--json").output)
        assert told["estimate"]["feasible"] > 0
        assert [one["code"] for one in told["diagnostics"]] == []

    @pytest.mark.parametrize("name", ["cpu_offload_gb", "offload_group_size"])
    def test_weights_that_are_not_all_on_the_gpu_are_not_refused(self, run, name):
        too_little = "gpu_memory_utilization: 0.01"
        result = run(f"gpu: L4\nengine_args: {{{too_little}, {name}: 200}}")
        assert result.exit_code == 0, result.output
        why = f"memory was not estimated: with {name}, some of the weights are in the host's memory"
        assert why in result.output
        none = run(f"gpu: L4\nengine_args: {{{too_little}, {name}: 0}}")
        assert "E3035" in none.output
