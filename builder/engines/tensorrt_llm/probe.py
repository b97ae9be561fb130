"""What an engine environment is, and the GPU it sees, as one line of JSON.

Run by the interpreter of that environment; standard library only. TensorRT-LLM is not imported: that takes
half a minute, and fails without a GPU.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import json

# Numbers of cuda.h: CUdevice_attribute.
_MAJOR, _MINOR = 75, 76
_TEXT = 256


def version(*distributions: str) -> str | None:
    """The version of the first of these distributions that is installed."""
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def gpu() -> dict[str, object]:
    """Name and SM (86 for compute capability 8.6) of the first visible GPU; nothing if there is none.

    By CUDA's driver API, https://docs.nvidia.com/cuda/cuda-driver-api.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_TEXT)
    failed = (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDeviceGetName(name, _TEXT, device)
        or cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        or cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    )
    return {} if failed else {"gpu_name": name.value.decode(), "sm": 10 * major.value + minor.value}


def driver_version() -> str | None:
    """By NVIDIA's management library, https://docs.nvidia.com/deploy/nvml-api."""
    try:
        management = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    text = ctypes.create_string_buffer(_TEXT)
    failed = management.nvmlInit_v2() or management.nvmlSystemGetDriverVersion(text, _TEXT)
    return None if failed else text.value.decode()


if __name__ == "__main__":
    facts = {
        "tensorrt_llm_version": version("tensorrt_llm"),
        "tensorrt_version": version("tensorrt_cu13", "tensorrt_cu12", "tensorrt"),
        "cuda_version": version("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
        "driver_version": driver_version(),
        **gpu(),
    }
    print(json.dumps(facts))  # noqa: T201  its output
