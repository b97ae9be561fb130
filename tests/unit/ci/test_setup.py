"""`make` makes its environments once, however many of it run."""

from __future__ import annotations

import subprocess
import sys

from shared.layout import PROJECT_ROOT

SET_UP = """
import importlib.util, sys, time
from pathlib import Path

spec = importlib.util.spec_from_file_location("setup", "ci/setup.py")
setup = sys.modules["setup"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(setup)
home = setup.HOME

def make(part):
    part.place.mkdir()
    time.sleep(1)

(home / "lock.txt").touch()
setup.parts = lambda dev: [setup.Part("it", home / "it", home / "lock.txt", make)]
sys.argv = ["setup"]
sys.exit(setup.main())
"""


def test_two_at_once_make_everything_once(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SET_UP],
            cwd=PROJECT_ROOT,
            env={"COG_TRITON_HOME": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=60)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert sorted(map(bool, told)) == [False, True]  # one made it, the other had nothing to do
