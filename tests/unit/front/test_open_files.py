"""How many connections a limit on open files leaves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shared.layout import PROJECT_ROOT

LIMITED = """
import resource
from runner.front.protocol import REFUSED_POLITELY, raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
print(raise_descriptor_limit(8192), REFUSED_POLITELY)
"""


@pytest.mark.parametrize(("files", "most"), [(64, 1), (1024, 800), (1 << 14, 8192)])
def test_connections_leave_open_files_to_the_others(files, most):
    """With those that are told that there are too many, they took all: changed API keys could not be read."""
    told = subprocess.run(
        [sys.executable, "-c", LIMITED.format(files=files)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        check=True,
    ).stdout
    connections, refused = map(int, told.split())
    assert 0 < connections <= most
    assert connections == 1 or connections + refused <= files - 200
