"""The load client in C."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
COMPILE = "from tests.performance.load import _client; import os; print(os.path.getsize(_client()))"


def test_it_leaves_no_folder_behind(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert int(done.stdout) > 0
    assert not list(tmp_path.iterdir())
