"""Whole files of wheels that the images of one GPU architecture do not need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .refused import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

# One file per GPU architecture since TensorRT 10.10, and more of them for engines that will run on Windows.
_RESOURCE = re.compile(r"(?:.*/)?libnvinfer_builder_resource(?:_(?P<target>[a-z0-9_]+))?\.so(?:\.\d+)*")
# Where NVIDIA's wheels for a version of CUDA are.
_CUDA = re.compile(r"nvidia/cu(?P<version>\d+)/.*")
# CUTLASS's Python package is there for several versions; of these it takes the newest that the driver knows.
_CUTLASS = re.compile(r"nvidia_cutlass_dsl/(?:|.*/_cutlass_ir\.)cu(?P<version>\d+)[./].*")
# Loaded when code for AMD's GPUs is compiled.
_AMD = re.compile(r"\w*triton/backends/amd/lib/libtriton_amd_codegen\.so")


def builder_resources(paths: Collection[str], builder: Collection[int]) -> set[str]:
    """TensorRT's builder resources, except what the `builder` of engines for these architectures needs.

    Raises Refused when there is none for one of them.
    """
    resources = {path: match["target"] for path in paths if (match := _RESOURCE.fullmatch(path))}
    own = {f"sm{sm}" for sm in builder}
    targets = {target for target in resources.values() if target and target.startswith("sm")}
    if targets and (missing := own - targets):
        raise Refused(
            f"TensorRT has no builder resource for {', '.join(sorted(missing))} here, "
            f"only for {', '.join(sorted(targets))}"
        )
    wanted = {None, "ptx", *own} if builder else set()
    return {path for path, target in resources.items() if target not in wanted}


def of_others(paths: Collection[str]) -> set[str]:
    """What is for another version of CUDA than that of the environment, or for AMD's GPUs."""
    versions = {match["version"] for path in paths if (match := _CUDA.fullmatch(path))}
    flavours = {path: match["version"] for path in paths if (match := _CUTLASS.fullmatch(path))}
    # The driver knows the environment's version, or nothing runs at all.
    is_there = len(versions) == 1 and versions <= set(flavours.values())
    others = {path for path, version in flavours.items() if is_there and version not in versions}
    return others | {path for path in paths if _AMD.fullmatch(path)}
