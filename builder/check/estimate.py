"""Roughly what a build needs of a machine, from the headers of the checkpoint's safetensors files."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

from builder.sources.parameters import bytes_of
from shared.errors import MachineTooSmall
from shared.sizes import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from builder.engines.tensorrt_llm.call import Call
    from builder.findings import Findings

_QFORMAT_BITS = {
    "fp8": 8.0, "fp8_pc_pt": 8.0, "int8_sq": 8.0, "int8_wo": 8.0, "int4_awq": 4.25, "w4a8_awq": 4.25,
    "int4_wo": 4.0, "nvfp4": 4.5,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes; `gpu_memory` of each GPU."""

    parameters: int
    download: int
    engine: int
    host_memory: int
    gpu_memory: int
    disk: int

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{_millions(self.parameters)} parameters; roughly {readable(self.host_memory)} of memory, "
            f"{readable(self.gpu_memory)} of each GPU, {readable(self.disk)} of disk;"
            f" the engine takes {readable(self.engine)}"
        )


def estimate(parameters: dict[str, int], calls: Sequence[Call]) -> Estimate:
    """What the build with `calls` needs: an order of magnitude, not a limit.

    A conversion holds the model and what it makes from it; trtllm-build holds each rank's weights twice, on
    the host and on the GPU. The disk holds the model, the checkpoint, the engine and the archive.
    """
    count = sum(parameters.values())
    download = bytes_of(parameters)
    made = [call for call in calls if call.tool != "trtllm-build"]
    ranks = max(1, made[-1].ranks()) if made else 1
    workers = min(ranks, max([call.size("workers") for call in calls if call.tool == "trtllm-build"] or [1]))
    engine = int(count * (_bits(made[-1]) if made else 16.0) / 8)
    calibrated = 2 * count if any(call.tool == "quantize.py" for call in made) else 0
    return Estimate(
        parameters=count,
        download=download,
        engine=engine,
        host_memory=max(download + engine, 2 * engine * workers // ranks),
        gpu_memory=max(calibrated, 2 * engine) // ranks,
        disk=download + 3 * engine,
    )


def check_machine(needed: Estimate, findings: Findings) -> None:
    """Warn about less memory and disk than `needed`."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        disk = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:  # nowhere can a file be made
        disk = 0
    for what, needs, has, free, fix in (
        ("memory", needed.host_memory, memory, "", "Build on a machine with more memory, or add swap"),
        (
            "disk",
            needed.disk,
            disk,
            " free",
            "Free space, or set TMPDIR and HF_HOME to directories on a larger one",
        ),
    ):
        if needs > has:
            present = readable(has) + free
            error = MachineTooSmall(needed=readable(needs), what=what, present=present, fix=fix)
            findings.warn((), error)


def _millions(count: int) -> str:
    if count < 1e6:
        return str(count)
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


def _bits(call: Call) -> float:
    """Of a weight in the checkpoint that `call` makes."""
    plain = 32.0 if call.value("dtype") == "float32" else 16.0
    if call.tool == "quantize.py":
        return _QFORMAT_BITS.get(str(call.value("qformat")), plain)
    if call.set("use_weight_only"):
        return 4.0 if str(call.value("weight_only_precision")).startswith("int4") else 8.0
    if any(call.set(name) for name in ("smoothquant", "use_fp8", "use_fp8_rowwise")):
        return 8.0
    return plain
