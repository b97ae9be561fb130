"""The processes below a supervisor."""

import subprocess
import sys

import pytest

from runner.lifecycle import out_of_memory
from shared.layout import PROJECT_ROOT

# In a process of its own: it ends all of its children.
_ENDS_ALL = """
import asyncio, os, signal, sys
from runner.lifecycle.processes import Processes

async def run():
    processes = Processes()
    dead = processes.start([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    os.kill(dead.pid, signal.SIGKILL)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # and the loop has not taken its signal yet
    await processes.end_all()
    print(dead.ended.is_set(), signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)

asyncio.run(run())
"""


def test_after_the_end_of_all_each_end_is_known_and_no_signal_of_a_child_is_taken():
    """It would come while the loop closes: `Exception ignored when trying to write to the signal wakeup fd`."""
    command = [sys.executable, "-c", _ENDS_ALL]
    ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("True True\n", "")


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from runner.lifecycle import processes
from runner.lifecycle.processes import Processes

async def run():
    counted = iter({counts})
    processes.killed_so_far = lambda: next(counted)
    started = Processes()
    child = started.start([sys.executable, "-c", "import time; time.sleep(60)"], os.environ)
    badness = [int(Path(f"/proc/{{pid}}/oom_score_adj").read_text()) for pid in ("self", child.pid)]
    os.kill(child.pid, signal.{by})
    await child.ended.wait()
    print(min(1000, badness[0] + 10) == badness[1], child.status)

asyncio.run(run())
"""


@pytest.mark.parametrize(
    ("by", "counts", "status"),
    [
        ("SIGKILL", [3, 4], "signal SIGKILL, probably because memory ran out"),
        ("SIGKILL", [3, 3], "signal SIGKILL"),
        ("SIGTERM", [3, 4], "signal SIGTERM"),
    ],
)
def test_what_the_kernel_kills_for_memory_is_said_and_it_takes_children_first(by, counts, status):
    command = [sys.executable, "-c", _KILLED.format(by=by, counts=counts)]
    ended = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == f"True {status}\n"


def test_the_kernels_count_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(out_of_memory, "_COUNTERS", tmp_path / "vmstat")
    assert out_of_memory.killed_so_far() == 0
    (tmp_path / "vmstat").write_text("pgfault 7\noom_kill 12\noom_kill_other 5\n")
    assert out_of_memory.killed_so_far() == 12
