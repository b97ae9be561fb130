"""The processor, the C library and Python."""

from __future__ import annotations

import os
import platform
import sys
from typing import TYPE_CHECKING

from cli.output import counted

from .check import Check, Finding, error, ok

if TYPE_CHECKING:
    from collections.abc import Iterator

_GLIBC = (2, 35)


def _look() -> Iterator[Finding]:
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        yield error(
            f"This is {system} on {machine}; Triton's wheels are for Linux on x86-64.",
            "Run the images on a Linux machine, or in a virtual machine with an x86-64 Linux.",
        )
        return
    name, version = platform.libc_ver()
    library = f"{name} {version}".strip() or "another C library"
    if name != "glibc" or tuple(map(int, version.split(".")[:2])) < _GLIBC:
        yield error(f"This system has {library}; glibc 2.35 is needed.", "Use a newer system, or the images.")
    cores = len(os.sched_getaffinity(0))
    python = ".".join(map(str, sys.version_info[:3]))
    yield ok(f"Linux on x86-64, {library}, Python {python}, {counted(cores, 'CPU core')}")


CHECK = Check("system", "The operating system, the processor and Python", _look)
