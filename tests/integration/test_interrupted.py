"""What asks a command to end also ends the program that it runs, even one that it is just starting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.layout import PROJECT_ROOT
from tests.support.waiting import wait_for

WEIGHTS = "COG_WEIGHTS=https://example.com/engine.tar"
# The program that is interrupted, and the command that runs it.
COMMANDS = {
    "apt-cache": ["nix.lock", "check-debian"],
    "skopeo": ["cli", "instantiate", "--base", "localhost:1/a", "--dest", "localhost:1/b", "-e", WEIGHTS],
}
APT_GET = """#!/bin/sh
echo Debian http://mirror.test/debian
echo Debian-Security http://mirror.test/security
"""
# Runs a module that gets a signal when the program has written its mark, but is not yet known to its parent.
WHILE_IT_STARTS = """
import os, runpy, subprocess, sys, time
from pathlib import Path

mark, number, module, *sys.argv[1:] = sys.argv[1:]
start = subprocess._fork_exec

def interrupted(*arguments):
    process = start(*arguments)
    if Path(mark).name in arguments[0]:
        while not os.path.exists(mark) or not Path(mark).read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), int(number))
    return process

subprocess._fork_exec = interrupted
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", COMMANDS)
@pytest.mark.parametrize("starting", [False, True])
def test_what_is_interrupted_leaves_nothing(tmp_path, program, number, starting):
    programs, scratch, mark = (tmp_path / name for name in ("programs", "scratch", program))
    for folder in (programs, scratch):
        folder.mkdir()
    (programs / "apt-get").write_text(APT_GET)
    (programs / program).write_text(f"#!/bin/sh\necho $$ > {mark}\nexec sleep 300\n")
    for path in programs.iterdir():
        path.chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text(WHILE_IT_STARTS)
    how = [script, mark, str(int(number))] if starting else ["-m"]
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(PROJECT_ROOT),
        "TMPDIR": str(scratch),
    }
    with subprocess.Popen(
        [sys.executable, *how, *COMMANDS[program]], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        wait_for(lambda: mark.exists() and mark.read_text())
        if not starting:
            running.send_signal(number)
        told = running.communicate()[1]
    assert "Traceback" not in told
    assert running.returncode == 128 + number
    assert list(scratch.iterdir()) == []
    child = Path("/proc", mark.read_text().strip())
    wait_for(lambda: not child.exists())  # it was killed, but not waited for
