"""Standard input and output that are closed, full or no text, and what no command expects."""

import fcntl
import io
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.generate import _typed
from shared.errors import GenericError, InvalidArgument, OutputRefused, ServerNotMeasured

PROGRAM = str(Path(sys.executable).with_name("cog-triton"))
NOWHERE = ("perf", "http://127.0.0.1:1", "--duration", "0.1")


def run(redirection, *arguments, **more):
    """With the redirection of a shell, such as `>&-`."""
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirection}', "bash", PROGRAM, *arguments],
        capture_output=True,
        check=False,
        timeout=60,
        **more,
    )


@pytest.mark.parametrize("what", ["prompt", "messages"])
def test_at_a_terminal_it_says_what_to_type(what, monkeypatch, capsys):
    typed = io.TextIOWrapper(io.BytesIO(b"[]\n"))
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", typed)
    assert _typed(what) == "[]"
    assert capsys.readouterr().err == f"Type the {what}, then Ctrl-D:\n"


@pytest.mark.parametrize("arguments", [("--version",), ("check", "data:,engine: mock"), ("init", "--help")])
def test_a_full_output_is_told(arguments):
    done = run(">/dev/full", *arguments)
    assert done.returncode == 1
    fix = "Direct it to another place"
    told = OutputRefused(path="stdout", reason="No space left on device", fix=fix)
    assert done.stderr.decode() == f"{told}\n"


def test_a_full_output_is_told_where_programs_are_not_listening():
    done = run(">/dev/full", "check", "data:,engine: mock", "--json")
    assert done.returncode == 1
    assert json.loads(done.stderr)["error"]["code"] == OutputRefused.code


def test_a_reader_that_has_left_is_no_error():
    done = run("| true; exit ${PIPESTATUS[0]}", "check", "data:,engine: mock")
    assert done.stderr == b""


def test_nothing_is_lost_where_the_output_does_not_block():
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(theirs, False)
    with subprocess.Popen([PROGRAM, "perf", "--help"], stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        assert select.select((ours,), (), (), 60)[0]
        time.sleep(0.3)  # it fills up
        with os.fdopen(ours, "rb") as output:
            told = output.read()
        assert (process.wait(), process.stderr.read()) == (0, b"")
    assert told == run("", "perf", "--help").stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_no_harm(closed):
    done = run(closed, *NOWHERE)
    assert done.returncode == 1
    told = b"" if "2>" in closed else ServerNotMeasured.code.encode()
    assert done.stderr[:5] == told


def test_what_is_opened_is_not_taken_for_a_closed_output(tmp_path):
    output = tmp_path / "engine.tar"
    assert run("<&- >&- 2>&-", "build", "data:,engine: mock", "-o", str(output)).returncode == 0
    assert run("", "inspect", str(output)).returncode == 0


@pytest.mark.parametrize("encoding", ["utf-8:strict", "ascii"])
def test_a_prompt_that_is_no_text(encoding):
    done = run("", "generate", "none.tar", input=b"a\xff", env={**os.environ, "PYTHONIOENCODING": encoding})
    error = InvalidArgument(argument="prompt", value="binary", reason="it must be text in UTF-8")
    assert (done.returncode, done.stderr.decode()) == (1, f"{error}\n")


def test_an_argument_that_is_no_text():
    done = run("", "check", b"config\xff.yaml")
    assert done.returncode == 2
    assert b"'config\\udcff.yaml' is not UTF-8" in done.stderr


def test_characters_that_the_encoding_lacks_are_escaped(tmp_path):
    path = tmp_path / "→.yaml"
    path.write_text("engine: mock\n")
    done = run("", "check", str(path), env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u2192.yaml: 0 errors" in done.stdout


def test_what_nobody_expected_has_a_code():
    """In a process of its own: it configures the logs."""
    broken = "import cli.main; cli.main.app = None; cli.main.main()"
    done = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, str(GenericError()))


def test_a_terminal_without_a_width_hides_nothing():
    done = run("", "serve", "--help", env=os.environ | {"COLUMNS": "0"})
    assert b"--port" in done.stdout
