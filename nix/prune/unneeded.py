"""Whole files of wheels that the images of one GPU architecture do not need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .refused import Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# One file per GPU architecture since TensorRT 10.10, and additional ones for engines that will run on
# Windows.
_RESOURCE = re.compile(r"(?:.*/)?libnvinfer_builder_resource(?:_(?P<target>[a-z0-9_]+))?\.so(?:\.\d+)*")
# Where NVIDIA's wheels for a version of CUDA are.
_CUDA = re.compile(r"nvidia/cu(?P<version>\d+)/.*")
# CUTLASS's Python package comes in several versions; it uses the newest that the driver supports.
_CUTLASS = re.compile(r"nvidia_cutlass_dsl/(?:|.*/_cutlass_ir\.)cu(?P<version>\d+)[./].*")
# Loaded when code for AMD's GPUs is compiled.
_AMD = re.compile(r"\w*triton/backends/amd/lib/libtriton_amd_codegen\.so")

# Only for Blackwell: kernels of multi-head latent attention, with a compiler of their own, and the sources of
# MiniMax's attention.
_BLACKWELL = re.compile(r"tokenspeed_(?:mla|triton)/.*|vllm/third_party/fmha_sm100/(?:cutlass|csrc)/.*")
# DeepGEMM compiles its kernels for Hopper and Blackwell.
_DEEP_GEMM = re.compile(r"vllm/third_party/deep_gemm/include/.*")
# FlashInfer compiles each of its kernels with nvcc. If its package is not found, vLLM uses something else.
_FLASHINFER = re.compile(r"flashinfer/.*")
# Read by a C++ compiler, which no image has, and by nvcc, which does not work without one. What NVRTC reads
# stays: CUDA's headers, and those for the kernels of TileLang and Humming.
_CPP = re.compile(
    r"torch/include/.*|include/cudnn_frontend.*"
    r"|tilelang/3rdparty/(?:composable_kernel|cutlass/tools|tvm)/.*"
    r"|tilelang/src/(?!tl_templates/).*\.(?:cc|cpp|h)"
)
# Read by a linker, except for device code, which CUDA's own linker adds at run time.
_STATIC = re.compile(r"(?:.*/)?(?!libcudadevrt|libnvshmem_device)[^/]+\.a")
# Notebooks that the wheel of PyNvVideoCodec installs beside its package.
_SAMPLES = re.compile(r"samples/.*")
_LIBRARY_NAME = re.compile(r"(?P<folder>(?:.*/)?)(?P<stem>lib[^/]*?)\.so(?:\.[\d.]*)?")


def builder_resources(paths: Collection[str], builder: Collection[int]) -> set[str]:
    """TensorRT's builder resources, except what the `builder` of engines for these architectures needs.

    Raises Refused when one of them has none.
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
    """Files for a CUDA version other than the environment's, or for AMD's GPUs."""
    versions = {match["version"] for path in paths if (match := _CUDA.fullmatch(path))}
    flavours = {path: match["version"] for path in paths if (match := _CUTLASS.fullmatch(path))}
    # The driver supports the environment's version, or nothing runs at all.
    is_there = len(versions) == 1 and versions <= set(flavours.values())
    others = {path for path, version in flavours.items() if is_there and version not in versions}
    return others | {path for path in paths if _AMD.fullmatch(path)}


def for_compilers(paths: Collection[str]) -> set[str]:
    """Files that only missing compilers and linkers read, and examples."""
    kinds = (_CPP, _FLASHINFER, _STATIC, _SAMPLES)
    return {path for path in paths if any(kind.fullmatch(path) for kind in kinds)}


def of_newer_gpus(paths: Collection[str], sm: int) -> set[str]:
    """Files that GPUs of the architecture `sm` cannot run."""
    kinds = [kind for kind, first in ((_DEEP_GEMM, 90), (_BLACKWELL, 100)) if sm < first]
    return {path for path in paths if any(kind.fullmatch(path) for kind in kinds)}


def copies(sizes: Mapping[str, int]) -> list[list[str]]:
    """Names in one folder that may be of one library, having one size: wheels cannot hold links."""
    groups: dict[tuple[str, str, int], list[str]] = {}
    for path, size in sizes.items():
        if match := _LIBRARY_NAME.fullmatch(path):
            groups.setdefault((match["folder"], match["stem"], size), []).append(path)
    return [sorted(group) for group in groups.values() if len(group) > 1]
