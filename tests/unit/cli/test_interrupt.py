"""Ctrl-C before the command line can answer it in its own words."""

import os
import signal
import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_during_the_imports_ends_it_quietly_unless_it_is_ignored(tmp_path, ignored):
    (tmp_path / "typer.py").write_text(
        "import sys\nprint('imports', flush=True)\nsys.exit(sys.stdin.read())\n"
    )
    trap = "trap '' INT;" if ignored else ""
    process = subprocess.Popen(
        ["sh", "-c", f'{trap} exec "$0" -m cli', sys.executable],
        cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "imports\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate("its end" if ignored else None, timeout=60)
    assert (process.returncode, told) == ((1, "its end\n") if ignored else (-signal.SIGINT, ""))


def test_ctrl_c_before_a_command_runs_ends_it_quietly():
    script = "import cli.main\ndef app(): raise KeyboardInterrupt\ncli.main.app = app\ncli.main.main()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command",
    [
        ["add-compiled", "{pipe}", "-o", "out.tar", "--cache", "."],
        ["instantiate", "{pipe}", "--base", "localhost:9/a", "--dest", "localhost:9/b"],
        ["model-repository", "--engine", "{pipe}", "--out", "out"],
    ],
)
def test_a_signal_lets_a_command_clean_up(tmp_path, command, number):
    """It ended at once: half an archive, or an image with its secrets, was left."""
    script = (
        "import os, time, cli.main\n"
        "def blocked(*_, **__):\n"
        "    try:\n"
        "        os.write(1, b'at work\\n')\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('cleaned up', flush=True)\n"
        "import cli.add_compiled, cli.instantiate, cli.model_repository\n"
        "cli.add_compiled.add_compiled = cli.instantiate.instantiate = blocked\n"
        "cli.model_repository.model_repository = blocked\n"
        "cli.main.main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *(part.format(pipe=tmp_path / "engine.tar") for part in command)],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "at work\n"
    process.send_signal(number)
    told, _ = process.communicate(timeout=60)
    assert (process.returncode, told) == (128 + number, "cleaned up\n")
