"""A preparation ends at once when it is told to, wherever it is, in silence, and leaves no half engine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from runner.lifecycle import preparation
from shared.artifact import partial_of

class Freed:
    def __del__(self):  # what is raised here goes nowhere
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)

def find(source, settings, check):
    half = partial_of(Path(sys.argv[-1]) / "engine")
    half.mkdir()
    (half / "weights").write_bytes(bytes(9))
    if os.environ["WHERE"] == "freed":
        Freed()
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
    except BaseException:
        pass
    sys.stderr.write("it goes on\\n")
    raise OSError

preparation.main(find)
"""


@pytest.mark.parametrize("where", ["freed", "caught"])
def test_it_ends_wherever_the_signal_comes(tmp_path, where):
    near, far = socket.socketpair()
    with near, far:
        command = [
            sys.executable,
            "-c",
            SCRIPT,
            "--control-fd",
            str(far.fileno()),
            "--directory",
            str(tmp_path),
        ]
        done = subprocess.run(
            command,
            cwd=PROJECT_ROOT,
            env={"PATH": os.environ["PATH"], "WHERE": where, "COG_WEIGHTS": str(tmp_path / "none")},
            pass_fds=[far.fileno()],
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")
    assert list(tmp_path.iterdir()) == []
