"""The processes below a supervisor."""

import subprocess
import sys

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
