"""A driver that reports two GPUs, on a machine without any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from shared.layout import Layout

_SOURCES = Path(__file__).resolve().parent / "nvml_stand_in"


def stand_in_driver(directory: Path) -> None:
    """The driver's library, and the limit of locked memory that several GPUs need."""
    zig = directory / "zig"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Layout.current().home / "zig"),
        "ZIG_LOCAL_CACHE_DIR": str(zig),
        "ZIG_GLOBAL_CACHE_DIR": str(zig),
    }
    for source, library in (("nvml.c", "libnvidia-ml.so.1"), ("limits.c", "limits.so")):
        command = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-o", library]
        path = str(_SOURCES / source)
        subprocess.run([*command, path], cwd=directory, env=environment, check=True)
