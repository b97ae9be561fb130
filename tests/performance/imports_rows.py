"""What bytecode saves at the start of a vLLM engine, whose images have it: the time of its imports, with and without.

With the vLLM that is compiled for CPUs (`make test-vllm` has it too), in a fresh process each time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from shared.layout import PROJECT_ROOT, Layout
from tests.performance.row import Row

ROUNDS = 3
_IMPORTS = "import runner.engines.vllm, vllm.v1.engine.core_client, vllm.v1.engine.core, vllm.model_executor.models.llama"


def _seconds(bytecode: Path, *, write: bool = False) -> float:
    """How long the imports take, with the bytecode that is below this folder; none is there at first."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT_ROOT),
        "PYTHONPYCACHEPREFIX": str(bytecode),
        "PYTHONDONTWRITEBYTECODE": "" if write else "1",
    }
    command = [Layout.current().home / "test-vllm/bin/python", "-c", _IMPORTS]
    started = time.monotonic()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return time.monotonic() - started


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        there, empty = Path(temporary, "bytecode"), Path(temporary, "nothing")
        _seconds(there, write=True)
        pairs = [(_seconds(there), _seconds(empty)) for _ in range(ROUNDS)]
    with_it, without = (statistics.median(times) for times in zip(*pairs, strict=True))
    name = "imports of a vLLM engine"
    return [
        Row(f"{name}, without bytecode", without, "s"),
        Row(f"{name}, with bytecode / without", with_it / without, at_most=0.6),
    ]
