"""How fast device code is pruned, and in how much memory: on a library as large as cuBLASLt, the largest of NVIDIA's,
with as many containers, and with a store of as many pieces as cuFFT's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.performance.row import Row
from tests.unit.prune.libraries import CUBIN, Library, container, cubin, entry

ROOT = Path(__file__).resolve().parents[2]
SMS = (75, 80, 86, 90, 100, 120)
CONTAINERS, PIECE = 2_800, 24_000
STORED, STORED_PIECE = 24_000, 4_500
CUBINS, CUBIN_SIZE = 400, 40_000
_MB = 1_000_000
# The process's own peak: what the kernel gives its parent counts the parent's memory before the start.
_PRUNE = """
import re, sys, time
from prune.__main__ import main
if main(["--sm", "86", sys.argv[1]]):
    sys.exit(1)
print(time.process_time(), *re.findall(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()))
"""


def library(path: Path) -> None:
    code = container(*(entry(CUBIN, sm, PIECE, fill=sm) for sm in SMS))
    stored = [container(entry(CUBIN, sm, STORED_PIECE, fill=sm)) for sm in SMS]
    cubins = [(sm, cubin(sm, CUBIN_SIZE)) for sm in SMS]
    made = Library(
        [code] * CONTAINERS,
        debug=b"\x77" * _MB,
        stored=stored * (STORED // len(SMS)),
        cubins=cubins * (CUBINS // len(SMS)),
    )
    path.write_bytes(made.build())


def pruned(path: Path) -> tuple[float, int]:
    """Seconds of processor time, and peak memory in bytes, of a process that prunes the library."""
    run = subprocess.run(
        [sys.executable, "-c", _PRUNE, path],
        env={**os.environ, "PYTHONPATH": str(ROOT / "nix")},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, kilobytes = run.stdout.split()[-2:]
    return float(seconds), 1024 * int(kilobytes)


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        path, copy = Path(temporary, "large.so"), Path(temporary, "copy.so")
        library(path)
        size = path.stat().st_size
        started = time.process_time()
        shutil.copyfile(path, copy)
        copied = time.process_time() - started
        seconds, memory = pruned(path)
    name = f"prune a library of {size / _MB:.0f} MB"
    return [
        Row(f"{name}: one core", size / _MB / seconds, "MB/s", at_least=150),
        Row(f"{name}: processor time / that of copying it", seconds / copied),
        Row(f"{name}: peak memory", memory / _MB, "MB", at_most=400),
    ]
