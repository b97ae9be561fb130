"""Machines that cannot run an engine are refused by name."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from runner.lifecycle import machine
from runner.lifecycle.machine import Gpu, Machine, _gpus, _shared, check_machine, read_machine
from shared.artifact import Manifest
from shared.errors import (
    DriverTooOld,
    GpuMismatch,
    GpuNotOfImage,
    GpusMissing,
    LockedMemoryTooSmall,
    MemoryTooSmall,
    SharedMemoryTooSmall,
    WeightsTooLargeForGpu,
)

H200 = Gpu("NVIDIA H200", 90, 140_000)
MACHINE = Machine(
    gpus=(H200, H200),
    driver="580.65",
    cuda=(13, 0),
    shared_mib=1024,
    locked_mib=None,
    memory_mib=64_000,
)


def manifest(**facts) -> Manifest:
    digest = "0" * 64
    return Manifest(
        engine="x", model="m", config_digest=digest, cog_triton_version="1", files=(), sm=90, ranks=2, **facts
    )


def check(kind: str = "tensorrt_llm", **changes) -> None:
    check_machine(kind, manifest(), read=lambda _: replace(MACHINE, **changes))


def test_a_machine_that_has_everything():
    check()


@pytest.mark.parametrize("kind", ["mock", "ctranslate2"])
def test_engines_for_cpus_run_everywhere(kind):
    check_machine(kind, None)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"gpus": (H200,)}, GpusMissing, "needed by the engine: 2; shown by this machine: 1"),
        ({"gpus": (H200, Gpu("NVIDIA A40", 86))}, GpuMismatch, r"SM 90; GPU 1 \(NVIDIA A40\) has SM 86"),
        (
            {"cuda": (12, 8)},
            DriverTooOld,
            r"580.65 supports CUDA 12.8; this image needs CUDA 13.0. Install driver 580 or newer",
        ),
        (
            {"memory_mib": 999},
            MemoryTooSmall,
            r"At most 999 MiB of memory can be used here; the engine needs 1000 MiB \(processes: 2\)",
        ),
        ({"shared_mib": 64}, SharedMemoryTooSmall, "64 MiB free; an engine on 2 GPUs needs 128"),
        ({"locked_mib": 0}, LockedMemoryTooSmall, "At most 0 MiB"),
    ],
)
def test_what_is_missing_is_named(changes, error, text):
    with pytest.raises(error, match=text):
        check(**changes)


def test_one_of_several_hosts_needs_a_gpu_of_its_own_and_no_more():
    def several(**changes) -> None:
        check_machine("vllm", manifest(), read=lambda _: replace(MACHINE, **changes), several_hosts=True)

    several(gpus=(H200,), shared_mib=64)
    with pytest.raises(GpusMissing, match="needed by the engine: 1; shown by this machine: 0"):
        several(gpus=())
    with pytest.raises(GpuMismatch, match=r"SM 90; GPU 0 \(NVIDIA A40\)"):
        several(gpus=(Gpu("NVIDIA A40", 86),))


def test_weights_that_no_gpu_has_room_for_are_refused():
    check_machine("vllm", manifest(gpu_bytes=140_000 << 20), read=lambda _: MACHINE)
    used = replace(MACHINE, gpus=(H200, H200._replace(free_mib=30_000)))
    with pytest.raises(
        WeightsTooLargeForGpu, match=r"GPU 1 \(NVIDIA H200\) has 30000 MiB free; .* take 40000 MiB"
    ):
        check_machine("vllm", manifest(gpu_bytes=40_000 << 20), read=lambda _: used)
    unknown = replace(MACHINE, gpus=(H200._replace(free_mib=None),) * 2)
    check_machine("vllm", manifest(gpu_bytes=1 << 60), read=lambda _: unknown)


def test_one_process_that_has_too_little_memory():
    machine = replace(MACHINE, memory_mib=499)
    with pytest.raises(MemoryTooSmall, match=r"the engine needs 500 MiB \(processes: 1\)\."):
        check_machine("tensorrt_llm", None, read=lambda _: machine)


def test_vllm_has_a_core_and_workers_beside_its_engine_process():
    with pytest.raises(MemoryTooSmall, match=r"the engine needs 2000 MiB \(processes: 4\)"):
        check_machine("vllm", manifest(), read=lambda _: replace(MACHINE, memory_mib=1999))


def test_the_memory_of_a_container_is_its_limit(tmp_path, monkeypatch):
    limits = tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"
    monkeypatch.setattr(machine, "_MEMORY_LIMITS", limits)
    whole = machine._memory()
    limits[0].write_text("max\n")
    assert machine._memory() == whole
    limits[0].write_text(f"{512 << 20}\n")
    assert machine._memory() == 512 << 20


def test_an_image_pruned_for_another_gpu_is_refused():
    check_machine("tensorrt_llm", manifest(), 90, lambda _: MACHINE)
    with pytest.raises(GpuNotOfImage, match=r"for SM 86 only; GPU 0 \(NVIDIA H200\) has SM 90"):
        check_machine("tensorrt_llm", manifest(), 86, lambda _: MACHINE)


def test_an_engine_without_a_manifest_needs_one_gpu():
    check_machine("tensorrt_llm", None, read=lambda _: replace(MACHINE, gpus=(Gpu("any", 80),), shared_mib=0))
    with pytest.raises(GpusMissing):
        check_machine("tensorrt_llm", None, read=lambda _: replace(MACHINE, gpus=()))


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        (None, ["a", "b", "c"]),
        ("", []),
        ("2,0", ["c", "a"]),
        ("1,7,0", ["b"]),
        ("GPU-b", ["b"]),
        ("-1", []),
    ],
)
def test_cuda_visible_devices(visible, names):
    gpus = ["a", "b", "c"]
    nvml = SimpleNamespace(
        nvmlDeviceGetCount=lambda: len(gpus),
        nvmlDeviceGetHandleByIndex=gpus.__getitem__,
        nvmlDeviceGetUUID=lambda name: f"GPU-{name}1234",
        nvmlDeviceGetName=lambda name: name,
        nvmlDeviceGetCudaComputeCapability=lambda _: (9, 0),
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(free=3 << 20),
    )
    assert [gpu.name for gpu in _gpus(nvml, visible)] == names


def test_a_driver_that_does_not_answer(monkeypatch):
    import pynvml

    def fail() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    with pytest.raises(
        GpusMissing, match=r"needed by the engine: 4; shown by this machine: 0 \(the driver says"
    ):
        read_machine(4)


def test_a_machine_without_shared_memory_has_none(monkeypatch):
    def missing(_path):
        raise FileNotFoundError

    monkeypatch.setattr("os.statvfs", missing)
    assert _shared() == 0
