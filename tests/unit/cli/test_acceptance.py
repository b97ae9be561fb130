"""What `cog-triton acceptance` says of checks, without any of TensorRT-LLM."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from cli.acceptance import CHECKS
from cli.acceptance.check import Check, Outcome, Skip, Status, Unable
from cli.acceptance.generation import PROMPTS
from cli.acceptance.report import acceptance
from cli.acceptance.tensorrt_llm.bench import TensorRTLLMBench
from cli.acceptance.vllm.bench import VLLMBench
from cli.main import app
from shared.config import VLLMConfig
from shared.errors import PartNotInstalled
from shared.layout import PROJECT_ROOT


def fails(error):
    def look(_):
        raise error

    return look


MADE = (
    Check("same", "it is", "a file", lambda _: Outcome("one", "one")),
    Check("other", "it is not", "another | file", lambda _: Outcome("one", "two\nlines | more")),
    Check("missing", "it is there", "a file", fails(Skip("it is elsewhere"))),
    Check("unable", "it works", "a file", fails(Unable("it does not"))),
    Check("fault", "we can look", "a file", fails(KeyError("x"))),
)


@pytest.fixture
def bench(tmp_path):
    return TensorRTLLMBench(tmp_path, tmp_path)


def test_each_check_ends_by_itself(bench, capsys):
    assert acceptance(MADE, bench, as_json=True, report=None) == 1
    ended = {check["name"]: check["status"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert ended == dict(
        zip(
            ("same", "other", "missing", "unable", "fault"),
            (Status.PASSED, Status.FAILED, Status.SKIPPED, Status.FAILED, Status.FAILED),
            strict=True,
        )
    )


def test_what_is_skipped_fails_nothing(bench, capsys):
    assert acceptance(MADE[:1] + MADE[2:3], bench, as_json=False, report=None) == 0
    assert capsys.readouterr().out.endswith("1 passed, 0 failed, 1 skipped\n")


def test_a_failure_names_the_assumption_and_its_source(bench, capsys, tmp_path):
    acceptance(MADE[1:2], bench, as_json=False, report=tmp_path / "report.md")
    for said in (capsys.readouterr().out, (tmp_path / "report.md").read_text()):
        assert all(part in said for part in ("it is not", "another | file", "one", "two"))
    table = (tmp_path / "report.md").read_text().partition("|---")[2]
    assert "| two lines \\| more |" in table


@pytest.mark.parametrize("engine", CHECKS)
def test_every_check_has_a_name_of_its_own_an_assumption_and_a_source(engine):
    assert max(Counter(check.name for check in CHECKS[engine]).values()) == 1
    assert all(check.assumes and check.source for check in CHECKS[engine])


def test_a_check_that_there_is_not_is_refused():
    ended = CliRunner().invoke(app, ["acceptance", "--only", "nothing"])
    assert ended.exit_code == 2
    assert "no check 'nothing'" in ended.output


def test_without_tensorrt_llm_it_says_so_at_once(monkeypatch):
    monkeypatch.setenv("COG_TRITON_HOME", "/nowhere")
    assert isinstance(CliRunner().invoke(app, ["acceptance"]).exception, PartNotInstalled)


def test_vllms_references_are_made_before_it_is_served(tmp_path, monkeypatch):
    # By vLLM itself, which needs the memory that a server has; and a check may be the only one.
    did = []

    class Served:
        def __init__(self, *_):
            did.append("served")

        def wait_ready(self):
            pass

    def ask(_, question, *__):
        did.append(question)
        return {"answers": [{"tokens": [5], "margins": [1.0]}] * len(PROMPTS), "max_model_len": 256}

    monkeypatch.setattr("cli.acceptance.bench.Server", Served)
    monkeypatch.setattr(VLLMBench, "ask_inside", ask)
    config = VLLMConfig.model_validate({"engine": "vllm", "model": str(PROJECT_ROOT / "demo/model")})
    VLLMBench(config, tmp_path).serve()
    assert did == ["reference", "served"]
