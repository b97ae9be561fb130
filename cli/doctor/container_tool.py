"""Docker or podman, what gives containers GPUs, and what copies images."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .check import Check, Finding, ok, warning
from .tool import answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRIVER = Path("/proc/driver/nvidia")


def _look() -> Iterator[Finding]:
    found = False
    for tool, question in (
        ("docker", ("docker", "version", "--format", "{{.Server.Version}}")),
        ("podman", ("podman", "--version")),
    ):
        if shutil.which(tool) is None:
            continue
        if version := answer(*question):
            found = True
            yield ok(f"{tool} {version.removeprefix('podman version ')}")
        else:
            yield warning(
                f"{tool} is installed, but does not answer.",
                "Start its service, and make sure that your user may use it (for docker: the group docker).",
            )
    if not found:
        yield warning(
            "Neither docker nor podman answers: images cannot be run.", "Install and start one of them."
        )
    if _DRIVER.is_dir() and not any(map(shutil.which, ("nvidia-ctk", "nvidia-container-runtime"))):
        yield warning(
            "There is an NVIDIA driver, but not NVIDIA's container toolkit: containers cannot use GPUs.",
            "Install nvidia-container-toolkit, and have `nvidia-ctk` configure docker or podman.",
        )
    if shutil.which("skopeo") is None:
        yield warning("skopeo is not installed: `cog-triton instantiate` needs it.", "Install skopeo.")
    else:
        yield ok("skopeo is installed")


CHECK = Check("container_tool", "Docker or podman, and skopeo", _look, of_hosts=True)
