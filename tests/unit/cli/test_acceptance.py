"""What `cog-triton acceptance` says of checks, without any of TensorRT-LLM."""

from __future__ import annotations

import errno
import json
import os
import sys
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
from shared.errors import ModelFolderUnusable, OutputRefused, PartNotInstalled, WorkFolderUnusable
from shared.layout import PROJECT_ROOT
from tests.support.processes import is_alive
from tests.support.waiting import wait_for


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


def test_a_run_that_is_broken_off_leaves_its_report(bench, tmp_path):
    broken_off = Check("broken off", "it ends", "a file", fails(KeyboardInterrupt()))
    report = tmp_path / "report.json"
    with pytest.raises(KeyboardInterrupt):
        acceptance((*MADE[:2], broken_off), bench, as_json=False, report=report)
    ended = {check["name"]: check["status"] for check in json.loads(report.read_text())["checks"]}
    assert ended == {"same": Status.PASSED, "other": Status.FAILED}


def test_a_report_that_cannot_be_written_ends_no_run(bench, tmp_path, monkeypatch, capsys):
    def refuse(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OutputRefused, match="No space left"):
        acceptance(MADE, bench, as_json=False, report=tmp_path / "report.md")
    assert capsys.readouterr().out.endswith("1 passed, 3 failed, 1 skipped\n")


def test_a_run_that_does_not_begin_leaves_no_report(monkeypatch, tmp_path):
    python = tmp_path / "engines/tensorrt_llm/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
    report = tmp_path / "report.md"
    asked = ["acceptance", "./nowhere", "--engine", "tensorrt_llm", "--report", str(report)]
    assert isinstance(CliRunner().invoke(app, asked).exception, ModelFolderUnusable)
    assert not report.exists()


@pytest.mark.parametrize("engine", CHECKS)
def test_every_check_has_a_name_of_its_own_an_assumption_and_a_source(engine):
    assert max(Counter(check.name for check in CHECKS[engine]).values()) == 1
    assert all(check.assumes and check.source for check in CHECKS[engine])


def test_a_check_that_there_is_not_is_refused():
    ended = CliRunner().invoke(app, ["acceptance", "--only", "nothing"])
    assert ended.exit_code == 2
    assert "no check 'nothing'" in ended.output


@pytest.mark.parametrize(
    ("arguments", "engine"),
    [
        ((), "tensorrt_llm or vllm"),
        (("--engine", "vllm"), "vllm"),
        (("--engine", "tensorrt_llm"), "tensorrt_llm"),
    ],
)
def test_without_an_engine_it_says_so_at_once(arguments, engine, monkeypatch):
    monkeypatch.setenv("COG_TRITON_HOME", "/nowhere")
    refused = CliRunner().invoke(app, ["acceptance", *arguments]).exception
    assert isinstance(refused, PartNotInstalled)
    assert f'The part "environment of the engine {engine}" of cog-triton is missing at /nowhere/' in str(
        refused
    )


@pytest.mark.parametrize("content", [None, "no JSON", "[]", '{"model": "x"}'])
def test_what_another_image_printed_is_read_before_anything_is_served(content, tmp_path):
    against = tmp_path / "other.json"
    if content is not None:
        against.write_text(content)
    ended = CliRunner().invoke(app, ["acceptance", "--against", str(against)], env={"COLUMNS": "300"})
    assert ended.exit_code == 2
    assert "Invalid value for --against" in ended.output
    assert (
        "No such file" if content is None else "is not what `cog-triton acceptance --json`"
    ) in ended.output


def test_an_archive_that_is_not_there_is_not_built_in_its_place(tmp_path):
    archive = tmp_path / "engine.tar"
    ended = CliRunner().invoke(app, ["acceptance", "--archive", str(archive)], env={"COLUMNS": "300"})
    assert ended.exit_code == 2
    assert f"Invalid value for --archive: there is no file {archive}" in ended.output


def test_a_machine_without_a_place_for_temporary_files_is_told_so(monkeypatch, tmp_path):
    python = tmp_path / "engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))

    def no_place() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("builder.pipeline.gettempdir", no_place)
    refused = CliRunner().invoke(app, ["acceptance"]).exception
    assert isinstance(refused, WorkFolderUnusable)


@pytest.mark.parametrize("option", ["--work-dir", "--report"])
def test_a_place_that_cannot_be_written_to_is_refused_before_the_checks(option, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    python = tmp_path / "engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
    place = tmp_path / "file/below"
    asked = ["acceptance", option, str(place)]
    refused = CliRunner().invoke(app, asked).exception
    assert isinstance(refused, OutputRefused)
    assert f"The output cannot be written to {place}: Not a directory. Choose another f" in str(refused)


def test_a_relative_path_starts_here_and_its_error_supposes_no_config(monkeypatch, tmp_path):
    python = tmp_path / "engines/tensorrt_llm/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
    refused = CliRunner().invoke(app, ["acceptance", "./nowhere", "--engine", "tensorrt_llm"]).exception
    assert isinstance(refused, ModelFolderUnusable)
    assert "'./nowhere' cannot be used: it does not exist. " in str(refused)
    assert "Check the path (in a config, a relative one starts at the config's folder), and" in str(refused)


# Starts another process, which has its output too; the first argument is the file that is told which.
LEAVES_ONE = """
import os, pathlib, subprocess, sys
left = subprocess.Popen(["sleep", "600"])
pathlib.Path(sys.argv[1]).write_text(str(left.pid))
print("said", flush=True)
if sys.argv[2] == "hangs":
    left.wait()
os._exit(3)
"""


@pytest.mark.parametrize("way", ["ends", "hangs"])
def test_what_a_program_of_the_engine_leaves_is_ended_with_it(bench, way, monkeypatch, tmp_path):
    """vLLM's engine core outlives the process that started it, and has its output."""
    monkeypatch.setattr("cli.acceptance.bench._INSIDE_SECONDS", 60 if way == "ends" else 5)
    program = tmp_path / "program.py"
    program.write_text(LEAVES_ONE)
    command = [sys.executable, str(program), str(tmp_path / "left"), way]
    if way == "hangs":
        with pytest.raises(Unable, match="did not end within 5 s"):
            bench.run(command)
    else:
        done = bench.run(command)
        assert (done.returncode, done.stdout) == (3, "said\n")
    left = int((tmp_path / "left").read_text())
    wait_for(lambda: not is_alive(left))


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
