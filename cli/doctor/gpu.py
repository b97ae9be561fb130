"""NVIDIA's GPUs and their driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from runner.engines.catalogue import ENGINES
from runner.lifecycle.machine import read_machine
from shared.errors import GpusMissing

from .check import Check, Finding, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_OLDEST_SM = 80  # of the images, in nix/default.nix
_DISPLAY = "0x03"  # the PCI class of a GPU begins with it
_NEED_ONE = ", ".join(kind.name for kind in ENGINES.values() if kind.needs_cuda is not None)
_NEED_NONE = ", ".join(kind.name for kind in ENGINES.values() if kind.needs_cuda is None)


def _look() -> Iterator[Finding]:
    try:
        machine = read_machine(1)
    except GpusMissing as missing:
        if on_the_bus():
            yield warning(
                f"There is an NVIDIA GPU, but {missing.details['reason']}.",
                "Install NVIDIA's driver, or start the container with --gpus all; `nvidia-smi` must answer.",
            )
        else:
            yield warning(
                f"There is no NVIDIA GPU. Engines that need one: {_NEED_ONE}; that need none: {_NEED_NONE}.",
                "If there should be one, install NVIDIA's driver, or start the container with --gpus all.",
            )
        return
    for index, gpu in enumerate(machine.gpus):
        what = f"GPU {index}: {gpu.name}, SM {gpu.sm}"
        if gpu.sm < _OLDEST_SM:
            yield warning(
                f"{what}: too old; the images of tensorrt_llm and vllm are for SM {_OLDEST_SM} and newer.",
                f"Use a newer GPU, or an engine that needs none: {_NEED_NONE}.",
            )
        else:
            yield ok(f"{what}: images whose name ends in -full, or in -{gpu.sm} if there are any")
    if not machine.gpus:
        if "CUDA_VISIBLE_DEVICES" in os.environ:
            yield warning("CUDA_VISIBLE_DEVICES hides every GPU.", "Unset it, or list the GPUs to use.")
        else:
            yield warning(
                "The driver reports no GPU.",
                "Start the container with --gpus all; `nvidia-smi -L` has to list the GPUs.",
            )
    for kind in ENGINES.values():
        if kind.needs_cuda is not None and machine.cuda < kind.needs_cuda:
            yield warning(
                f"The driver {machine.driver} supports CUDA {_version(machine.cuda)};"
                f" {kind.name} needs {_version(kind.needs_cuda)}.",
                "Install a newer driver on the host.",
            )
    yield ok(f"Driver {machine.driver}, for CUDA up to {_version(machine.cuda)}")


def on_the_bus() -> int:
    """How many NVIDIA GPUs the PCI bus has, with a driver or without."""
    return sum(
        (device / "vendor").read_text().strip() == _NVIDIA
        and (device / "class").read_text().startswith(_DISPLAY)
        for device in (_PCI.iterdir() if _PCI.is_dir() else ())
    )


def _version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


CHECK = Check("gpu", "NVIDIA GPUs and their driver", _look)
