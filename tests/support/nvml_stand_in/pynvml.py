# ruff: noqa: N802 - these are its names
"""Stands in for `pynvml` (nvidia-ml-py) on a machine without GPUs: one H200, and a driver for CUDA 13."""

from types import SimpleNamespace


class NVMLError(Exception):
    pass


def nvmlInit() -> None:
    pass


def nvmlShutdown() -> None:
    pass


def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return 13000


def nvmlSystemGetDriverVersion() -> str:
    return "580.65"


def nvmlDeviceGetCount() -> int:
    return 1


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{handle}"


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA H200"


def nvmlDeviceGetMemoryInfo(handle: int) -> SimpleNamespace:
    return SimpleNamespace(total=143771 << 20, free=143166 << 20)


def nvmlDeviceGetCudaComputeCapability(handle: int) -> tuple[int, int]:
    return 9, 0
