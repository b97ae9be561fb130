import os
import resource
import signal
import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT

CRASH = "import os; from shared.core_dumps import no_core_dumps; no_core_dumps(); os.abort()"
HARD = resource.getrlimit(resource.RLIMIT_CORE)[1]


def crash(folder, program):
    """Whether a process that crashes there leaves a core dump, although its user allows them."""
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    program = f"import resource; resource.setrlimit(resource.RLIMIT_CORE, ({HARD}, {HARD})); {program}"
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, env=environment, stderr=subprocess.DEVNULL
    )
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -signal.SIGABRT
    assert os.WTERMSIG(status) == signal.SIGABRT
    return os.WCOREDUMP(status)


def test_a_crash_leaves_no_core_dump(tmp_path):
    if not crash(tmp_path, "import os; os.abort()"):
        pytest.skip("this machine makes no core dumps")
    for core in tmp_path.iterdir():
        core.unlink()
    assert not crash(tmp_path, CRASH)
    assert not list(tmp_path.iterdir())


def test_an_operator_can_still_allow_them():
    program = "import resource; from shared.core_dumps import no_core_dumps; no_core_dumps()\n"
    program += "print(*resource.getrlimit(resource.RLIMIT_CORE))"
    done = subprocess.run([sys.executable, "-c", program], cwd=PROJECT_ROOT, check=True, capture_output=True)
    assert done.stdout.split() == [b"1" if HARD else b"0", b"%d" % HARD]
