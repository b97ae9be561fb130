"""The bridge between hostile engines, clients and a Triton whose calls fail, under GCC's sanitizers.

A seed repeats what happened: `.build/bridge-address/steps SEED 1`, with SHOW_LOG=1 for what the bridge logs.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from shared.layout import PROJECT_ROOT
from tests.bridge.build import SANITIZED, program

# Of the address sanitizer, that of threads, and ours.
_FAULT = re.compile(r"wrong: |ERROR: |WARNING: ThreadSanitizer|runtime error: ")


def fixed_addresses() -> list[str]:
    """What starts a program at the same addresses each time, where that is allowed: GCC 12's sanitizers end at times
    in the middle of nothing where addresses are as random as newer kernels make them.
    """
    command = ["setarch", "--addr-no-randomize"]
    allowed = subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return command if allowed else []


@pytest.mark.parametrize(
    ("name", "sanitizer", "rounds"),
    [("steps", "address", 4000), ("lives", "address", 60), ("lives", "thread", 40)],
)
def test_nothing_is_lost_and_no_memory_is_hurt(name, sanitizer, rounds):
    made = program(name, PROJECT_ROOT / f".build/bridge-{sanitizer}", SANITIZED[sanitizer])
    done = subprocess.run(
        [*fixed_addresses(), made, "1", str(rounds)],
        env={**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "TSAN_OPTIONS": "halt_on_error=1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode, _FAULT.search(done.stdout)) == (0, None), done.stdout[-4000:]
    assert f"seed {rounds}\n" in done.stdout
