"""How many connections a limit on open files leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.layout import PROJECT_ROOT
from tests.support.raw_http import connected, status_of
from tests.support.waiting import wait_for

GET = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"

LIMITED = """
import resource
from runner.front.descriptors import share_descriptors
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
shares = share_descriptors(8192)
print(shares.connections, shares.refused + shares.handshakes)
"""


@pytest.mark.parametrize(
    ("files", "least", "most"), [(64, 20, 32), (128, 40, 64), (1024, 500, 800), (1 << 14, 8192, 8192)]
)
def test_connections_leave_open_files_to_the_others(files, least, most):
    """With those that are told that there are too many, they took all: changed API keys could not be read.

    Under a low limit, one connection was left, and one idle client shut out everybody else.
    """
    told = subprocess.run(
        [sys.executable, "-c", LIMITED.format(files=files)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        check=True,
    ).stdout
    connections, short_lived = map(int, told.split())
    assert least <= connections <= most
    assert connections + short_lived <= files - min(files // 2, 200)


SERVING = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from tests.support.front import running
with running(Path(sys.argv[1])) as front:
    print(front.port, flush=True)
    sys.stdin.read()
"""


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_storm_of_connections_under_a_low_limit(engine_directory):
    """Nothing dies or spins, the first keep their connections, and service returns with the descriptors."""
    command = [sys.executable, "-c", SERVING, str(engine_directory)]
    with (
        subprocess.Popen(command, cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
        ExitStack() as stack,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        front = SimpleNamespace(port=int(process.stdout.readline()))
        honest = [stack.enter_context(connected(front, GET)) for _ in range(20)]
        assert {status_of(one.recv(1 << 16)) for one in honest} == {200}
        storm = [stack.enter_context(connected(front)) for _ in range(500)]
        before = cpu_seconds(process)
        time.sleep(2)
        assert cpu_seconds(process) < before + 0.5
        for one in honest:
            one.sendall(GET)
            assert status_of(one.recv(1 << 16)) == 200
        for one in storm:
            one.close()

        def served() -> bool:
            with suppress(ConnectionError), connected(front, GET) as one_more:
                return one_more.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            return False

        wait_for(served, seconds=10)
        process.stdin.close()
        assert process.wait(20) == 0
