"""What the command line refuses before anything is sent, and what it makes of the rest."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("cog-triton")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rate", "8", "--concurrency", "8"], "a rate or a concurrency, not both"),
        (["--concurrency", "1,x"], "not a list such as 1,8,64"),
        (["--concurrency", "0"], "not a list such as 1,8,64"),
        (["--concurrency", "1,999999999"], "the most is 100000"),
        (["--unit", "batch"], "a batch needs --rate"),
        (["--unit", "batch", "--rate", "0.5"], "at least 1"),
        (["--slo", "speed=5ms"], "is not NAME=500ms"),
        (["--prompts", "none.txt"], "none.txt: No such file or directory"),
        (["--prompts", "/bin/sh"], "/bin/sh: it is not UTF-8"),
        (["--target", "vllm"], "is not one of"),
    ],
)
def test_what_is_refused(arguments, said, tmp_path):
    done = subprocess.run(
        [PROGRAM, "perf", "http://127.0.0.1:1", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"COLUMNS": "200", "NO_COLOR": "1"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
