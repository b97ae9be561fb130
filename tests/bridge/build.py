"""Compile the engine bridge with GCC, whose sanitizers and counters the product's own compiler lacks."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shared.layout import PROJECT_ROOT

BRIDGE = PROJECT_ROOT / "runner/bridge"
HERE = Path(__file__).resolve().parent

SANITIZED = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
# GNU's C, in which counts are written before a process becomes another program.
COUNTED = ("--coverage", "-fprofile-update=atomic", "-std=gnu11")

_STAND_IN = sorted(f"triton_stand_in/{path.name}" for path in HERE.glob("triton_stand_in/*.c"))
_SHARED = ["frames.c", "client.c", *_STAND_IN]

# What has a main function here, and which modules it consists of. `steps` has no threads and no processes.
PROGRAMS = {
    "steps": (
        ["steps.c", *_SHARED],
        [
            "buffer.c",
            "delivery.c",
            "feed.c",
            "json.c",
            "request.c",
            "request_queue.c",
            "request_table.c",
            "restarts.c",
            "submit.c",
            "triton.c",
        ],
    ),
    "lives": (
        ["lives.c", "hostile_engine.c", *_SHARED],
        sorted(path.name for path in BRIDGE.glob("*.c")),
    ),
}
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread")


def program(name: str, folder: Path, flags: tuple[str, ...]) -> Path:
    """One of PROGRAMS, made in `folder`."""
    ours, theirs = PROGRAMS[name]
    sources = [*(HERE / source for source in ours), *(BRIDGE / source for source in theirs)]
    return _compile(sources, folder, name, flags)


def library(folder: Path, flags: tuple[str, ...]) -> Path:
    """The bridge as Triton loads it, made in `folder`."""
    name = "libtriton_engine_bridge.so"
    return _compile(sorted(BRIDGE.glob("*.c")), folder, name, ("-shared", "-fvisibility=hidden", *flags))


def _compile(sources: list[Path], folder: Path, name: str, flags: tuple[str, ...]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    command = ["gcc", *_FLAGS, *flags, f"-I{BRIDGE}", f"-I{HERE}", "-o", name, *map(str, sources)]
    subprocess.run(command, cwd=folder, check=True)
    return folder / name
