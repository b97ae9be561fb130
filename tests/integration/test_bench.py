"""A bench and a soak that are ended, which have servers of their own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shared.layout import PROJECT_ROOT
from tests.integration.conftest import READY_SECONDS
from tests.support.processes import descendants, is_alive
from tests.support.waiting import wait_for


def engine_of(pid):
    """The engine's process below this one, once there is one."""
    for below in descendants(pid):
        try:
            command = Path(f"/proc/{below}/cmdline").read_bytes()
        except OSError:
            continue
        if b"runner.engines.process" in command:
            return below
    return None


@pytest.mark.parametrize(
    ("program", "number"),
    [(("bench", "cancel"), signal.SIGTERM), (("soak",), signal.SIGHUP)],
    ids=["bench", "soak"],
)
def test_what_is_ended_ends_what_it_started(tmp_path, program, number):
    command = [sys.executable, "-m", f"tests.performance.{program[0]}", *program[1:]]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=PROJECT_ROOT, env=environment, start_new_session=True) as process:
        try:
            wait_for(lambda: engine_of(process.pid), READY_SECONDS)
        finally:
            started = descendants(process.pid)
            process.send_signal(number)
            try:
                status = process.wait(120)
            finally:
                process.kill()
                left = set(filter(is_alive, started))
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
    assert (status, left) == (128 + number, set())
    assert list(tmp_path.iterdir()) == []
