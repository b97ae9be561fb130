"""A rank leaves MPI together with the others, or by itself."""

from __future__ import annotations

import signal
import subprocess
import sys

from shared.layout import PROJECT_ROOT

# As MPI's own: it waits for the other ranks, and holds the GIL meanwhile.
_ALONE = """
import ctypes, sys, types
sys.modules["mpi4py.MPI"] = types.SimpleNamespace(Finalize=lambda: ctypes.PyDLL(None).sleep(60))
from runner.engines.tensorrt_llm.ranks import finalize_mpi
finalize_mpi()
"""


def test_a_rank_that_waits_for_the_others_in_vain_ends():
    ended = subprocess.run([sys.executable, "-c", _ALONE], cwd=PROJECT_ROOT, check=False, timeout=30)
    assert ended.returncode == -signal.SIGALRM
