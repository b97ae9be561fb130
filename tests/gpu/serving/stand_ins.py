"""What the machine or the payload lacks, made here: a checkout as the payload, a driver, a limit that cannot be raised."""

from __future__ import annotations

import resource
import shlex
import subprocess
from typing import TYPE_CHECKING

from tests.gpu.serving.load import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_STAND_INS = ROOT / "tests/support/nvml_stand_in"
# As the tests with the real vLLM have them (tests/vllm/conftest.py).
_ON_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}


def on_cpu(scratch: Path, *, rehearse: bool) -> dict[str, str]:
    """The environment of an engine on a machine that has none: a driver's library that shows two."""
    library = _compiled("nvml.c", scratch / "driver/libnvidia-ml.so.1")
    return {"LD_LIBRARY_PATH": str(library.parent), **(_ON_CPU if rehearse else {})}


def allow_locked_memory(scratch: Path) -> dict[str, str]:
    """As a container's --ulimit memlock=-1, which several GPUs need.

    Where root may not raise the limit, our check of it is shown another one; the engine sees the true one.
    """
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError):
        return {"LD_PRELOAD": str(_compiled("limits.c", scratch / "limits/limits.so"))}
    return {}


def _compiled(source: str, library: Path) -> Path:
    """A stand-in for a part of the machine, of tests/support/nvml_stand_in."""
    library.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(_STAND_INS / source)], check=True)
    return library


def target_of_checkout(place: Path, *, simulate: bool) -> Path:
    """What `unpack.sh` makes on a machine with a GPU, of this checkout and vLLM's CPU build (`make test-vllm`)."""
    build = ROOT / ".build"
    python = place / "home/engines/vllm/bin/python"
    python.parent.mkdir(parents=True)
    for part in ("triton", "bridge"):
        (place / "home" / part).symlink_to(build / part)
    real = shlex.quote(f"{build}/test-vllm/bin/python")
    simulated = (
        f'case $1 in -m) exec {real} -m tests.gpu.serving.simulated "$@" ;; esac\n' if simulate else ""
    )
    python.write_text(f'#!/bin/sh\n{simulated}exec {real} "$@"\n')
    python.chmod(0o755)
    return place
