"""vLLM itself: what is imported, what it sees of the machine, and the libraries it needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cli.acceptance.check import Check, Outcome, Skip
from cli.output import counted

if TYPE_CHECKING:
    from .bench import VLLMBench

_FIRST, _LAST = (0, 26), (0, 33)
_VERSIONS = "0.26 to 0.33"


def _import(bench: VLLMBench) -> Outcome:
    version: str = bench.ask_inside("versions")["vllm"]
    release = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return Outcome(_VERSIONS, _VERSIONS if _FIRST <= release <= _LAST else version)


def _gpus(bench: VLLMBench) -> Outcome:
    seen = bench.ask_inside("gpus")
    if not seen["cuda"] or not bench.gpus:
        raise Skip("this PyTorch is for CPUs" if not seen["cuda"] else "the driver reports no GPU")
    return Outcome(counted(bench.gpus, "GPU"), counted(seen["gpus"], "GPU"))


def _interface(bench: VLLMBench) -> Outcome:
    return Outcome("all is there", "; ".join(bench.ask_inside("interface")) or "all is there")


def _libraries(bench: VLLMBench) -> Outcome:
    return Outcome("all are loaded", "; ".join(bench.ask_inside("libraries")) or "all are loaded")


CHECKS = (
    Check(
        "import",
        f"vllm can be imported, and is version {_VERSIONS}",
        "requirements/engine-vllm.txt",
        _import,
    ),
    Check(
        "GPU and driver",
        "PyTorch sees as many GPUs as the driver reports",
        "PyTorch is built for CUDA 13, which needs driver 580 or newer",
        _gpus,
    ),
    Check(
        "interface",
        "the engine core's client, its requests and its outputs have everything that the engine uses",
        "vllm/v1/engine/core_client.py, vllm/v1/engine/__init__.py, vllm/sampling_params.py",
        _interface,
    ),
    Check(
        "libraries",
        "every shared library of the package can be loaded",
        "the wheel's libraries need PyTorch's and CUDA's, some of which pruning removes",
        _libraries,
    ),
)
