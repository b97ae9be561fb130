"""A process ends when the one that started it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHILD = """
import os, resource, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
for _ in range(int(sys.argv[1])):
    os.open("/dev/null", os.O_RDONLY)
from runner.lifecycle.lifeline import Lifeline
lifeline = Lifeline()
lifeline.before = lambda: open(sys.argv[2], "w").close()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def end_of_child(mark: Path, descriptors: int) -> None:
    """Kill the parent of a child that has so many descriptors open; the child has to tell its end."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD, str(descriptors), str(mark)], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        # The pipe ends when the child does: it holds the other end too.
        try:
            parent.communicate(timeout=20)
        finally:
            try:
                signal.pidfd_send_signal(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(child)
    assert mark.exists()


def test_it_cleans_up_first(tmp_path):
    end_of_child(tmp_path / "mark", 0)


def test_it_works_above_a_thousand_descriptors(tmp_path):
    end_of_child(tmp_path / "mark", 1100)
