import json

import pytest

from builder.check.report import check
from builder.findings import Findings, Severity
from shared.errors import ConfigCheckFailed, ConfigDuplicateKey, ConfigInvalid, MachineTooSmall
from shared.vllm_arguments import table

CLEAN = "engine: tensorrt_llm\nmodel: a/b\n"
REFUSED = """\
model_id: a/b
example_name: llama
build:
  executable: trtllm-build
  output_dir: engine
  args:
    streamingllm: enable
    gemm_plugin: float15
    dry_rum:
"""


def test_a_diagnostic_is_one_line_for_editors():
    *_, last = check(REFUSED, "c.yaml").diagnostics
    assert str(last) == (
        "c.yaml:9:5: warning: E3011 ArgumentUnknown: trtllm-build is not known to have an argument --dry_rum."
        " Check its spelling: --dry_run is the nearest known one; if it is spelled right, remove it."
    )


@pytest.mark.parametrize(
    ("script", "instead"),
    [
        ("conver_checkpoint.py", "convert_checkpoint.py"),
        ("hf_llama_convrt.py", "models/core/llama/convert_checkpoint.py"),
    ],
)
def test_the_nearest_script_is_one_that_is_there(script, instead):
    text = f"model_id: a/b\nexample_name: llama\nconvert_to_ft: {{script: {script}, output_dir: c}}\n"
    (found,) = check(text + "build: {executable: trtllm-build, output_dir: e}", "c").diagnostics
    assert (found.code, found.fix) == ("E3021", f"Write {instead}.")
    assert not check(
        (text + "build: {executable: trtllm-build, output_dir: e}").replace(script, instead), "c"
    ).diagnostics


def test_a_path_is_named_as_the_config_has_it():
    text = "model_id: a/b\nexample_name: gpt\nconvert_to_ft: {script: hf_gpt_convert.py, output_dir: c, args: {i: /other}}\n"
    found = check(text + "build: {executable: trtllm-build, output_dir: e}", "c").errors
    assert [one.what for one in found] == ["i is '/other', which is outside the work directory."]


@pytest.mark.parametrize(
    ("folder", "fix"),
    [
        ("gpt-neox", "Write gptneox/convert_checkpoint.py."),
        (
            "unheard-of",
            "Write convert_checkpoint.py alone, with example_name, or put one of these folders before it: bert,",
        ),
    ],
)
def test_an_example_is_corrected_where_it_stands(folder, fix):
    text = "model_id: a/b\nexample_name: llama\nbuild: {executable: trtllm-build, output_dir: e}\n"
    text += f"convert_to_ft: {{script: {folder}/convert_checkpoint.py, output_dir: c}}\n"
    (found,) = check(text, "c").errors
    assert (found.code, found.key) == ("E3031", "convert_to_ft.script")
    assert found.fix.startswith(fix)


def test_the_nearest_choice_is_named():
    found = next(one for one in check(REFUSED, "c.yaml").diagnostics if one.code == "E3012")
    assert found.what == "--gemm_plugin of trtllm-build cannot be 'float15'."
    assert "float16 is the nearest" in found.fix


def test_json():
    report = json.loads(json.dumps(check(REFUSED, "c.yaml").as_json()))
    assert report["source"] == "c.yaml"
    assert report["diagnostics"][1] == {
        "file": "c.yaml",
        "line": 7,
        "column": 5,
        "severity": "error",
        "code": "E3019",
        "name": "ArgumentRefused",
        "key": "build.args.streamingllm",
        "what": (
            "--streamingllm is refused by TensorRT-LLM 1.2.1: it is a way to keep an endless cache, not"
            " token streaming, which is always on."
        ),
        "fix": "Remove it.",
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: 1\na: 2", ConfigDuplicateKey),
        ("engine: mock\nx: 1", ConfigInvalid),
        ("instantiate: {system_prompt: x}", ConfigInvalid),
        (REFUSED, ConfigCheckFailed),
    ],
)
def test_a_build_is_refused_with_what_is_wrong(text, error):
    with pytest.raises(error) as caught:
        check(text, "c.yaml").build_config()
    if error is ConfigCheckFailed:
        assert "line 7: E3019 " in str(caught.value)
        assert "line 8: E3012 " in str(caught.value)
        assert "E3011" not in str(caught.value)


def test_many_errors_are_counted():
    keys = "".join(f"k{n}: 1\n" for n in range(25))
    with pytest.raises(ConfigInvalid, match="; and 5 more"):
        check("engine: tensorrt_llm\nmodel: a/b\n" + keys, "c").build_config()


def test_warnings_do_not_stop_a_build():
    text = CLEAN + "max_seq_len: 32768\n"
    report = check(text, "c")
    assert [one.severity for one in report.diagnostics] == [Severity.WARNING]
    assert report.build_config() == report.config


@pytest.mark.parametrize(
    "engine", ["mock", "{engine: ctranslate2, model: a/b}", "{engine: vllm, model: a/b}"]
)
def test_other_engines_are_checked_by_their_form(engine):
    report = check(engine if engine.startswith("{") else f"engine: {engine}", "c")
    assert report.diagnostics == report.calls == ()


def test_findings_without_a_place_come_first():
    findings = Findings()
    findings.warn((), MachineTooSmall(needed="9 GB", what="disk", present="1 GB", fix="Free space"))
    report = check(REFUSED, "c").with_findings(findings)
    assert [one.code for one in report.diagnostics] == ["E3030", "E3027", "E3019", "E3012", "E3011"]


def test_gpus_that_are_there():
    text = CLEAN + "tensor_parallel_size: 2\n"
    assert [one.code for one in check(text, "c", gpus=1).diagnostics] == ["E3029"]
    assert check(text, "c", gpus=2).diagnostics == ()


def test_an_item_of_a_list_hides_nothing():
    served = """\
instantiate:
  stop_sequences: ["", "a"]
  server: {tensorrt_llm: {args: {decoupled_mode: maybe}}}
"""
    found = check(CLEAN + served, "c").diagnostics
    assert [(one.code, one.line) for one in found] == [("E3008", 4), ("E2505", 5)]


@pytest.mark.parametrize(
    "text", ["build: [1, 2]\nmodel_id: a/b\n", f"{CLEAN}instantiate: {{stop_sequences: [1, 2]}}"]
)
def test_several_items_of_a_list(text):
    assert check(text, "c").errors


class TestVllm:
    def only(self, more):
        (found,) = check(f"engine: vllm\nmodel: a/b\nengine_args: {{{more}}}\n", "c").diagnostics
        return found

    @pytest.mark.parametrize("name", ["num_speculative_tokens", "speculative_model", "num_lookahead_slots"])
    def test_a_successor_that_is_a_key_of_the_config(self, name):
        found = self.only(f"{name}: 4")
        assert found.code == "E3034"
        assert found.fix.startswith("Write speculative_config: {")
        assert found.fix.endswith("in its place; in a config, outside engine_args.")

    def test_a_name_that_is_near_a_key_of_the_config(self):
        found = self.only("max_modl_len: 4")
        assert found.code == "E3006"
        assert found.fix == "Write max_model_len (in a config, outside engine_args), or remove it."

    def test_such_a_name_of_a_draft_is_not_one_of_the_config(self):
        text = "engine: vllm\nmodel: a/b\nspeculative_config: {method: draft_model, model: c/d, modle: e/f, num_speculative_tokens: 3}\n"
        (found,) = check(text, "c").diagnostics
        assert (found.code, found.fix) == ("E3006", "Write model, or remove it.")

    def test_a_successor_that_is_an_engine_argument(self):
        assert self.only("swap_space: 4").fix == "Write kv_offloading_size in its place."

    @pytest.mark.parametrize(
        "name", ["max_seq_len_to_capture", "max_context_len_to_capture", "disable_async_output_proc"]
    )
    def test_arguments_that_nothing_replaces(self, name):
        assert self.only(f"{name}: 4").fix == "Remove it."

    @pytest.mark.parametrize("name", table()["own"])
    def test_keys_of_the_config(self, name):
        found = self.only(f"{name}: a/b")
        assert found.code == "E3033"
        assert f"the config's own key {name}, outside engine_args, sets that." in found.what
        assert found.fix == "Remove it, or set it as the reason says."

    @pytest.mark.parametrize(
        ("argument", "package"),
        [
            ("load_format: runai_streamer", "runai-model-streamer"),
            ("kernel_config: {moe_backend: hpc}", "hpc-ops"),
            ("kv_offloading_backend: lmcache", "lmcache"),
        ],
    )
    def test_what_needs_a_package_says_so(self, argument, package):
        found = self.only(argument)
        assert found.code == "E3008"
        value = argument.rstrip("}").rpartition(" ")[2]
        assert f"({value} needs the package {package}, which the images lack)" in found.what


OLD = """\
model_id: a/b
example_name: llama
convert_to_ft:
  script: convert_checkpoint.py
  output_dir: c
  args: {CONVERT}
build:
  executable: trtllm-build
  output_dir: engine
  args: {BUILD}
"""


def of_old(code, convert="{}", build="{}", more=""):
    report = check(OLD.replace("{CONVERT}", convert).replace("{BUILD}", build) + more, "c")
    return [(one.what, one.fix) for one in report.diagnostics if one.code == code]


def test_paths_are_told_as_they_are_written():
    ((what, _),) = of_old("E3026", convert="{model_dir: /src/models/a/c}")
    assert what.startswith("--model_dir is '/src/models/a/c', and ")
    ((what, _),) = of_old("E3026", build="{checkpoint_dir: ./d}")
    assert what == "--checkpoint_dir is './d', and earlier steps write to c."


@pytest.mark.parametrize(
    ("convert", "build", "code"),
    [
        ("{}", "{max_seq_len: 4096, max_num_tokens: false}", "E3028"),
        ("{}", "{gather_context_logits: , max_draft_len: false}", "E3018"),
        ("{tp_size: 4, moe_tp_size: false, moe_ep_size: 2}", "{}", "E3018"),
    ],
)
def test_what_false_omits_has_the_default_of_its_tool(convert, build, code):
    assert not of_old(code, convert, build)


def test_what_limits_prompts_instead():
    ((_, fix),) = of_old("E3017", build="{max_input_len: 100}")
    assert fix == "Remove it; set max_num_tokens to limit prompts."
    ((_, fix),) = of_old("E3017", build="{max_input_len: 100, max_num_tokens: 100}")
    assert fix == "Remove it."


def test_arguments_that_do_not_go_together():
    ((what, _),) = of_old("E3018", build="{model_cls_file: z}")
    assert what == "--model_cls_file z does not go with the other arguments: model_cls_name is missing."


def test_the_one_key_of_a_section_is_proposed_alone():
    text = "engine: tensorrt_llm\nmodel: a/b\ninstantiate: {server: {tensorrt_llm: {zzz: 1}}}\n"
    (found,) = [one for one in check(text, "c").diagnostics if one.code == "E3006"]
    assert found.fix == "Write args, or remove it."


def test_what_a_build_config_sets_is_not_judged_besides():
    lengths = "build_config: b.json, max_num_tokens: 4096, max_seq_len: 8192, max_input_len: 9000"
    more = "speculative_decoding_mode: eagle, multiple_profiles: enable, opt_num_tokens: 8"
    report = check(OLD.replace("{CONVERT}", "{}").replace("{BUILD}", f"{{{lengths}, {more}}}"), "c")
    assert {(one.code, one.fix) for one in report.diagnostics} == {("E3017", "Remove it.")}


def test_what_cannot_be_built_is_not_said_to_be_tried():
    text = OLD.replace("{CONVERT}", "{export_format: hf}").replace("{BUILD}", "{}")
    found = check(text.replace("convert_to_ft", "quantize").replace("convert_checkpoint", "quantize"), "c")
    assert [one.code for one in found.diagnostics] == ["E3018"]


@pytest.mark.parametrize(
    ("argument", "named", "fix"),
    [
        ("qformat: fp8_pc_pt", "--qformat fp8_pc_pt", "write another value"),
        ("export_format: tensorrt_llm", "--export_format", "remove it"),
    ],
)
def test_what_only_some_versions_are_known_to_have(argument, named, fix):
    text = OLD.replace("{CONVERT}", f"{{{argument}}}").replace("{BUILD}", "{}")
    found = check(text.replace("convert_to_ft", "quantize").replace("convert_checkpoint", "quantize"), "c")
    (one,) = found.diagnostics
    assert (one.code, one.severity) == ("E3038", Severity.WARNING)
    assert one.what == f"It is not known whether quantize.py of TensorRT-LLM 1.2.1 accepts {named}."
    assert one.fix == f"Nothing to do: the build tries it. If it is refused, {fix}."


CHUNKED = "instantiate: {server: {tensorrt_llm: {args: {enable_chunked_context: WORD}}}}\n"


@pytest.mark.parametrize(
    ("word", "warned"), [("true", False), ("'True'", False), ("false", True), ("", True)]
)
def test_with_chunked_context_prompts_are_not_capped(word, warned):
    served = CHUNKED.replace("WORD", word)
    assert bool(of_old("E3028", build="{max_seq_len: 32768}", more=served)) == warned
    short = check(f"{CLEAN}max_seq_len: 32768\n{served}", "c").diagnostics
    assert [one.code for one in short] == (["E3028"] if warned else [])


def test_the_longest_prompt_leaves_room_for_a_token():
    arguments = "{max_input_len: 8192, max_seq_len: 4096, context_fmha: disable}"
    config = f"model_id: a/b\nbuild: {{executable: trtllm-build, output_dir: e, args: {arguments}}}\n"
    (found,) = [one for one in check(config, "c.yaml").diagnostics if one.code == "E3017"]
    assert "max_seq_len limits prompts to 4095 tokens." in found.what
