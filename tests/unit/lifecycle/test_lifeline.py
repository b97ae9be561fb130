"""A process ends when the one that started it does."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import os, resource, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
for _ in range(int(sys.argv[1])):
    os.open("/dev/null", os.O_RDONLY)
from runner.lifecycle.lifeline import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.parametrize("descriptors", [0, 1100])
def test_it_ends_with_its_parent_however_many_descriptors_it_has(descriptors):
    command = [sys.executable, "-c", PARENT, CHILD, str(descriptors)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline())
        parent.kill()
        parent.communicate(timeout=20)  # ends when the child does, which holds the pipe too
