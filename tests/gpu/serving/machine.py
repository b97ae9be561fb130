"""What the figures are measured on: the machine, and the processes of a session on it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")
# The roles for which CPU time is reported, by what is in a process's command line.
_ROLES = (
    ("tritonserver", "triton"),
    ("runner.front", "front"),
    ("runner.engines.process", "engine process"),
    ("runner.lifecycle", "supervisor"),
    ("EngineCore", "engine core"),
    ("tests.gpu.serving.direct", "direct"),
    ("vllm-rs", "rust front"),
    ("APIServer", "python front"),
    ("vllm", "python front"),
)
_OTHERS = "others"


def machine(target: Path) -> dict[str, Any]:
    """What the figures of this call were measured with."""
    code = "import torch, vllm; print(vllm.__version__, torch.__version__)"
    python = str(target / "home/engines/vllm/bin/python")
    environment = os.environ | {"PYTHONPATH": str(target / "site")}
    told = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True)
    vllm, torch = told.stdout.splitlines()[-1].split()
    gpu = None
    if shutil.which("nvidia-smi") is not None:
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return {
        "gpu_and_driver": gpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "vllm": vllm,
        "torch": torch,
    }


def below(pid: int) -> dict[int, str]:
    """The command lines of the processes of a session."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            session = int(path.read_bytes().rpartition(b")")[2].split()[3])
            name = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if session == pid:
            found[int(path.parent.name)] = name
    return found


def processes_by_role(pid: int) -> dict[str, int]:
    """One process of a session for each role in it."""
    return {_role(name): child for child, name in below(pid).items() if _role(name) != _OTHERS}


def _role(name: str) -> str:
    return next((role for part, role in _ROLES if part in name), _OTHERS)


def cpu_seconds(pid: int) -> dict[str, float]:
    """What the processes of a session have used, by their role."""
    used: dict[str, float] = {}
    for child, name in below(pid).items():
        role = _role(name)
        try:
            fields = Path(f"/proc/{child}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        used[role] = used.get(role, 0) + (int(fields[11]) + int(fields[12])) / _TICK
    return used


def cpu_per_token(before: dict[str, float], after: dict[str, float], tokens: int) -> dict[str, float]:
    """Microseconds, by role, between two answers of `cpu_seconds`."""
    return {
        role: round(1e6 * (seconds - before.get(role, 0)) / max(tokens, 1), 1)
        for role, seconds in after.items()
    }


def compute_processes() -> list[str]:
    """Which processes hold memory of the GPU."""
    command = ["nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()
