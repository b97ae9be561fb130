import pytest

from builder.check.report import check
from tests.unit.tensorrt_llm.commands import errors, lines, warnings

HEAD = "model_id: a/b\nexample_name: llama\n"
GPT = HEAD.replace("llama", "gpt")
BUILD = "build:\n  executable: trtllm-build\n  output_dir: engine\n  args:\n    dry_run:\n"
CONVERT = "convert_to_ft:\n  script: convert_checkpoint.py\n  output_dir: c\n  args:\n"
QUANTIZE = "quantize:\n  script: ../quantization/quantize.py\n  output_dir: q\n"


def test_what_a_step_does_not_say_is_added():
    assert lines(HEAD + CONVERT + "    workers: 1\n" + BUILD) == [
        "models/core/llama/convert_checkpoint.py --model_dir model --workers 1 --output_dir c",
        "trtllm-build --checkpoint_dir c --dry_run --output_dir engine",
    ]


def test_another_source_of_the_weights():
    convert = CONVERT + "    meta_ckpt_dir: /src/models/a/b/original\n"
    assert lines(HEAD + convert + BUILD)[0] == (
        "models/core/llama/convert_checkpoint.py --meta_ckpt_dir model/original --output_dir c"
    )


def test_build_reads_what_was_made_last():
    text = HEAD + CONVERT + "    workers: 1\n" + QUANTIZE + BUILD
    assert lines(text)[1:] == [
        "quantization/quantize.py --model_dir model --output_dir q",
        "trtllm-build --checkpoint_dir q --dry_run --output_dir engine",
    ]


def test_build_may_read_what_was_made_first():
    text = HEAD + CONVERT + "    workers: 1\n" + QUANTIZE + BUILD + "    checkpoint_dir: ./c\n"
    assert lines(text)[2] == "trtllm-build --dry_run --checkpoint_dir c --output_dir engine"


def test_a_model_config_needs_no_checkpoint():
    text = HEAD + CONVERT + "    workers: 1\n" + BUILD + "    model_config: c/config.json\n"
    assert lines(text)[1] == "trtllm-build --dry_run --model_config c/config.json --output_dir engine"


def test_a_list_is_told_as_the_tool_has_it():
    build = "build:\n  script: build.py\n  output_dir: e\n  args:\n    dtype: [a, b]\n"
    report = check(HEAD + CONVERT + "    dtype: float16\n" + build, "test.yaml")
    (told,) = [one.what for one in report.errors if one.code == "E3018"]
    assert "--dtype a b" in told


def test_the_script_may_name_its_example():
    text = "model_id: a/b\nconvert_to_ft:\n  script: ../qwen/convert_checkpoint.py\n  output_dir: c\n" + BUILD
    assert lines(text)[0].startswith("models/core/qwen/convert_checkpoint.py ")


def test_what_the_build_said_of_the_checkpoint_goes_to_its_step():
    text = (
        HEAD
        + CONVERT
        + "    dtype: float16\n"
        + (
            "build:\n  script: build.py\n  output_dir: e\n  args: {dtype: fp16, world_size: 2, use_weight_only: }\n"
        )
    )
    assert lines(text) == [
        (
            "models/core/llama/convert_checkpoint.py --model_dir model --dtype float16 --output_dir c"
            " --tp_size 2 --use_weight_only"
        ),
        "trtllm-build --checkpoint_dir c --output_dir e",
    ]


def test_lengths_count_from_the_default_of_the_old_tool():
    args = "    max_output_len: 100\n"
    assert "--max_seq_len 1124" in lines(HEAD + BUILD + args)[1]
    old = "build:\n  script: build.py\n  output_dir: e\n  args: {max_output_len: 100}\n"
    assert "--max_seq_len 2148" in lines(HEAD + old)[1]


@pytest.mark.parametrize(("prompt", "total"), [("false", 1124), ("[50]", 150)])
def test_lengths_count_from_what_the_prompt_length_means(prompt, total):
    args = f"    max_input_len: {prompt}\n    max_output_len: 100\n"
    assert f"--max_seq_len {total}" in lines(HEAD + BUILD + args)[1]


def test_an_output_length_means_what_other_numbers_mean():
    assert "--max_seq_len 1124" in lines(HEAD + BUILD + "    max_output_len: [100]\n")[1]
    assert "--max_seq_len" not in lines(HEAD + BUILD + "    max_output_len: false\n")[1]


@pytest.mark.parametrize(
    ("written", "told"),
    [("", "without a value"), ("true", "true"), ("[1, 2]", "[1, 2]"), ("[]", "an empty list"), ("x", "'x'")],
)
def test_an_output_length_that_is_no_number_is_told_as_it_stands_in_the_config(written, told):
    report = check(HEAD + BUILD + f"    max_output_len: {written}\n", "test.yaml")
    (error,) = [one.what for one in report.errors if one.code == "E3012"]
    assert f"--max_output_len of trtllm-build cannot be {told}." in error


def test_a_flag_that_is_false_is_left_out():
    args = "    weight_streaming: false\n    max_batch_size: false\n"
    assert (
        lines(HEAD + BUILD + args)[1]
        == "trtllm-build --checkpoint_dir checkpoint --dry_run --output_dir engine"
    )


@pytest.mark.parametrize(("written", "meant"), [("false", "disable"), ("true", "enable"), ("", "enable")])
def test_a_switch_that_is_a_yaml_boolean(written, meant):
    args = f"    remove_input_padding: {written}\n"
    assert f"--remove_input_padding {meant}" in lines(HEAD + BUILD + args)[1]
    assert ("E3014", "build.args.remove_input_padding") in warnings(HEAD + BUILD + args)


def test_a_switch_of_an_old_tool_that_is_off_stays_off():
    old = "build:\n  script: build.py\n  output_dir: e\n  args: {enable_context_fmha: false}\n"
    assert "--context_fmha disable" in lines(HEAD + old)[1]


def test_a_deprecated_switch_that_is_off_is_told():
    """By its successor alone: to write it as it was meant would be another remedy for the same argument."""
    told = warnings(HEAD + BUILD + "    paged_kv_cache: false\n")
    assert [one for one in told if one[1] == "build.args.paged_kv_cache"] == [
        ("E3016", "build.args.paged_kv_cache")
    ]


def test_lists_are_spread():
    args = "    lora_plugin: auto\n    lora_dir: [one, two]\n    lora_target_modules: [attn_q, attn_k]\n"
    assert lines(HEAD + BUILD + args)[1].endswith(
        "--lora_dir one two --lora_target_modules attn_q attn_k --output_dir engine"
    )


def test_the_case_of_the_cache_type_does_not_count():
    assert warnings(HEAD + BUILD + "    kv_cache_type: PAGED\n") == [("E3027", "build")]


def test_an_example_without_a_table_warns_only():
    text = HEAD.replace("llama", "falcon") + CONVERT + "    new_decoder_architecture: true\n" + BUILD
    assert errors(text) == []
    assert warnings(text) == [("E3011", "convert_to_ft.args.new_decoder_architecture")]


def test_an_argument_that_is_left_out_is_told_by_its_name_in_the_config():
    build = "build:\n  script: build.py\n  output_dir: e\n  args: {enable_fp8: }\n"
    (told,) = [one.what for one in check(GPT + build, "test.yaml").diagnostics if one.code == "E3015"]
    assert "--enable_fp8 of build.py is from an older release" in told


def test_an_argument_that_is_unknown_by_its_new_name_is_told_by_that_in_the_config_too():
    build = "build:\n  script: build.py\n  output_dir: e\n  args: {enable_fp8: }\n"
    report = check(GPT + CONVERT + "    dtype: float16\n" + build, "test.yaml")
    (told,) = [one.what for one in report.diagnostics if one.code == "E3011"]
    assert "convert_checkpoint.py is not known to have an argument --use_fp8, which" in told
    assert " --enable_fp8 has become" in told


def test_a_conversion_that_cannot_be_added():
    assert errors("model_id: a/b\nexample_name: lama\n" + BUILD) == [("E3031", "example_name")]


def test_a_conversion_never_overwrites():
    assert errors(HEAD + BUILD + "    checkpoint_dir: engine/c\n") == [("E3024", "build")]


def test_an_alias_becomes_the_name():
    convert = CONVERT + "    sq: 0.5\n"
    assert lines(HEAD + convert + BUILD + "    max_decoder_seq_len: 4096\n") == [
        "models/core/llama/convert_checkpoint.py --model_dir model --smoothquant 0.5 --output_dir c",
        "trtllm-build --checkpoint_dir c --dry_run --max_seq_len 4096 --output_dir engine",
    ]
