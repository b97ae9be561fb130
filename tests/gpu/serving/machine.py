"""What the figures are measured on: the machine, and the processes of a session on it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
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
    ("VLLM::Worker", "workers"),
    ("tests.gpu.serving.direct", "direct"),
    ("vllm-rs", "rust front"),
    ("APIServer", "python front"),
    ("vllm", "python front"),
)
_OTHERS = "others"
MULTICAST_OFF = {
    "NCCL_NVLS_ENABLE": "0",
    "NVSHMEM_DISABLE_NVLS": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}
"""What keeps several GPUs of one machine from using NVLink's multicast, which some machines must not do."""
_TRANSPORT = re.compile(r"Channel .* via (\S+)")  # of a channel, in NCCL's log


def machine(target: Path) -> dict[str, Any]:
    """What the figures of this call were measured with."""
    code = "import torch, vllm; print(vllm.__version__, torch.__version__)"
    python = str(target / "home/engines/vllm/bin/python")
    try:
        told = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit(f"{python} has no vLLM: unpack the payload, or `make test-vllm` for a checkout")
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


def host_of(pid: int) -> Path:
    """The namespace of host names that a process has got of its own. Raises RuntimeError when it gets none."""
    for _ in range(100):
        with suppress(OSError):
            if (own := Path(f"/proc/{pid}/ns/uts").readlink()) != Path("/proc/self/ns/uts").readlink():
                return own
        time.sleep(0.05)
    raise RuntimeError(f"process {pid} has no host name of its own")


def processes_of(host: Path) -> dict[int, str]:
    """The command lines of a host's processes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (path / "ns/uts").readlink() == host:
                name = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found[int(path.name)] = name
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


def multicast_is_off(processes: dict[int, str]) -> list[str]:
    """The names of vLLM's processes among these. Raises RuntimeError for one that was not told to keep it off.

    They need SPT_NOENV: without it, what sets their names removes their environment from where others read it.
    """
    names = {pid: name.strip() for pid, name in processes.items() if name.startswith("VLLM::")}
    for pid, name in names.items():
        told = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        if missing := MULTICAST_OFF.items() - {tuple(entry.split("=", 1)) for entry in told}:
            raise RuntimeError(f"{name} lacks {dict(missing)}")
    return sorted(names.values())


def transports(logs: Path) -> dict[str, Any]:
    """By what NCCL's channels go, as its logs there say, with one line of each kind; they are removed."""
    seen: Counter[str] = Counter()
    lines = {}
    for log in logs.glob("nccl-*.txt"):
        for line in log.read_text(errors="replace").splitlines():
            if found := _TRANSPORT.search(line):
                seen[found[1]] += 1
                lines[found[1]] = line.strip()
        log.unlink()
    return {"channels": dict(seen), "lines": list(lines.values())}


def compute_processes() -> list[str]:
    """Which processes hold memory of the GPU."""
    command = ["nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()
