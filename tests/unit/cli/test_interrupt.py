"""Ctrl-C before the command line can answer it in its own words."""

import os
import signal
import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT
from shared.signals import ENDS


def importing(folder, module, then, command):
    """A program that imports `module`, which does `then` with all that it is told."""
    (folder / f"{module}.py").write_text(
        f"import os, sys\nprint('imports', flush=True)\n{then}(sys.stdin.read())\n"
    )
    process = subprocess.Popen(
        command,
        cwd=PROJECT_ROOT,
        env=os.environ | {"PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "imports\n"
    return process


@pytest.mark.parametrize("ignored", [False, True])
def test_ctrl_c_during_the_imports_ends_it_quietly_unless_it_is_ignored(tmp_path, ignored):
    trap = "trap '' INT;" if ignored else ""
    command = ["sh", "-c", f'{trap} exec "$0" -m cli', sys.executable]
    process = importing(tmp_path, "typer", "sys.exit", command)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate("its end" if ignored else None, timeout=60)
    assert (process.returncode, told) == ((1, "its end\n") if ignored else (-signal.SIGINT, ""))


def test_ctrl_c_before_a_command_runs_ends_it_quietly():
    script = "import cli.main\ndef app(): raise KeyboardInterrupt\ncli.main.app = app\ncli.main.main()"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("command", [["serve", "none.tar"], ["join", "127.0.0.1:9", "none.tar"]])
def test_what_ends_a_program_waits_until_that_which_serves_can_answer_it(command):
    """Ctrl-C came with a traceback while that was being imported."""
    script = (
        "import os, signal, cli.main\n"
        "def execve(*_):\n"
        "    os.write(1, repr(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))).encode())\n"
        "    os._exit(0)\n"
        "os.execve = execve\n"
        "cli.main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-u", "-c", script, *command],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == repr(sorted(ENDS))


@pytest.mark.parametrize("number", ENDS)
def test_what_ends_a_runner_waits_until_that_has_been_imported(tmp_path, number):
    """In a container, SIGTERM had no effect at all then, and Ctrl-C in a terminal showed a traceback."""
    command = [sys.executable, "-m", "runner.lifecycle"]
    process = importing(tmp_path, "argparse", "(lambda told: os._exit(int(told)))", command)
    process.send_signal(number)
    _, told = process.communicate("7", timeout=60)
    assert (process.returncode, told) == (7, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command",
    [
        ["acceptance"],
        ["add-compiled", "{pipe}", "-o", "out.tar", "--cache", "."],
        ["generate", "{pipe}", "--prompt", "Hello"],
        ["instantiate", "{pipe}", "--base", "localhost:9/a", "--dest", "localhost:9/b"],
        ["model-repository", "--engine", "{pipe}", "--out", "out"],
    ],
)
def test_a_signal_lets_a_command_clean_up(tmp_path, command, number):
    """It ended at once: half an archive, an image with its secrets, or an engine on a GPU was left."""
    script = (
        "import os, time, cli.main\n"
        "def blocked(*_, **__):\n"
        "    try:\n"
        "        os.write(1, b'at work\\n')\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('cleaned up', flush=True)\n"
        "import cli.acceptance.command, cli.add_compiled, cli.generate, cli.instantiate, cli.model_repository\n"
        "cli.acceptance.command.run = cli.generate.generate = blocked\n"
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
