import json

import pytest

from builder.check.report import check
from builder.findings import Findings, Severity
from shared.errors import ConfigCheckFailed, ConfigDuplicateKey, ConfigInvalid, MachineTooSmall

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
        " Check its spelling: --dry_run is the nearest known one."
    )


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
def test_a_build_is_refused_with_everything_that_is_wrong(text, error):
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
