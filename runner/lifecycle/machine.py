"""What an engine needs of the machine, checked before it is loaded: its own errors would be riddles."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.engines.catalogue import ENGINES
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

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.artifact import EngineFacts

# What the ranks of one engine exchange tokens and buffers through, with NCCL; a container has 64 MiB of
# shared memory by default, which is known to be too little (NCCL's user guide, "Troubleshooting").
_SHARED_MIB_PER_RANK = 64
_LOCKED_MIB_PER_RANK = 8
# Less than one has after its imports, without CUDA's context and weights: 516 MiB, measured with vLLM.
_MIB_PER_PROCESS = 500
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_MIB = 1 << 20
# NVIDIA's first driver for each version of CUDA (CUDA's release notes).
_DRIVERS = {(13, 0): 580}


class Gpu(NamedTuple):
    """A GPU that this process may use. `sm` is its compute capability: 90 for 9.0."""

    name: str
    sm: int
    free_mib: int | None = None
    """Of its memory; None if the driver does not report it."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters about it."""

    gpus: tuple[Gpu, ...]
    driver: str
    cuda: tuple[int, int]
    """The newest CUDA that the driver supports."""
    shared_mib: int
    locked_mib: int | None
    """How much memory may be locked; None: no limit."""
    memory_mib: int
    """The machine's memory, or as much of it as the container may have."""


def check_machine(
    kind: str,
    engine: EngineFacts | None,
    image_sm: int | None = None,
    read: Callable[[int], Machine] | None = None,
    *,
    several_hosts: bool = False,
) -> None:
    """Refuse a machine on which the engine cannot run. Engines for CPUs run everywhere.

    `image_sm` is the GPU architecture whose device code is in the image; None: all of them. `read` gets the
    number of GPUs needed, and returns the machine. With `several_hosts`, one GPU is enough: others may have
    the rest. Raises GpusMissing, GpuMismatch, GpuNotOfImage, DriverTooOld, SharedMemoryTooSmall,
    LockedMemoryTooSmall, WeightsTooLargeForGpu and MemoryTooSmall.
    """
    needed_cuda = ENGINES[kind].needs_cuda
    if needed_cuda is None:
        return
    ranks = 1 if engine is None else engine.ranks
    machine = (read or read_machine)(ranks)
    if several_hosts:
        ranks = max(1, min(ranks, len(machine.gpus)))
    if len(machine.gpus) < ranks:
        raise GpusMissing(needed=ranks, found=len(machine.gpus), reason="no more are visible")
    if machine.cuda < needed_cuda:
        raise DriverTooOld(
            driver=machine.driver,
            driver_cuda=_version(machine.cuda),
            needed_cuda=_version(needed_cuda),
            oldest=_DRIVERS[needed_cuda],
        )
    engine_sm = None if engine is None else engine.sm
    gpu_mib = 0 if engine is None else (engine.gpu_bytes or 0) // _MIB
    for index, gpu in enumerate(machine.gpus[:ranks]):
        # Exactly: some libraries choose kernels by name, for the exact GPU that they find.
        if image_sm not in (None, gpu.sm):
            raise GpuNotOfImage(image_sm=image_sm, index=index, gpu=gpu.name, gpu_sm=gpu.sm)
        if engine_sm not in (None, gpu.sm):
            raise GpuMismatch(engine_sm=engine_sm, index=index, gpu=gpu.name, gpu_sm=gpu.sm)
        if gpu.free_mib is not None and gpu.free_mib < gpu_mib:
            raise WeightsTooLargeForGpu(index=index, gpu=gpu.name, free=gpu.free_mib, needed=gpu_mib)
    processes = ENGINES[kind].processes(ranks)
    if machine.memory_mib < (mib := _MIB_PER_PROCESS * processes):
        raise MemoryTooSmall(limit=machine.memory_mib, processes=processes, needed=mib)
    if ranks == 1:
        return
    if machine.shared_mib < (mib := _SHARED_MIB_PER_RANK * ranks):
        raise SharedMemoryTooSmall(available=machine.shared_mib, ranks=ranks, needed=mib)
    if machine.locked_mib is not None and machine.locked_mib < (mib := _LOCKED_MIB_PER_RANK * ranks):
        raise LockedMemoryTooSmall(limit=machine.locked_mib, ranks=ranks, needed=mib)


def read_machine(needed: int) -> Machine:
    """The facts of this machine. Raises GpusMissing, with `needed`, when the driver does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
            driver = pynvml.nvmlSystemGetDriverVersion()
            gpus = _gpus(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise GpusMissing(needed=needed, found=0, reason=f"the driver says {error}") from None
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Machine(
        gpus=gpus,
        driver=driver,
        cuda=(cuda // 1000, cuda % 1000 // 10),
        shared_mib=_shared() // _MIB,
        locked_mib=None if locked == resource.RLIM_INFINITY else locked // _MIB,
        memory_mib=_memory() // _MIB,
    )


def gpus_here() -> int:
    """How many GPUs this process may use. Raises GpusMissing when the driver does not answer."""
    return len(read_machine(1).gpus)


def _shared() -> int:
    """Free bytes where NCCL keeps its segments; 0 where there is no such place."""
    try:
        found = os.statvfs("/dev/shm")  # noqa: S108 - only looked at
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize


def _memory() -> int:
    """Bytes of the machine, or of the container, according to cgroups of either version."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [machine]
    for path in _MEMORY_LIMITS:
        try:
            limits.append(int(path.read_bytes()))
        except (OSError, ValueError):  # ValueError: "max"
            continue
    return min(limits)


def _gpus(nvml: Any, visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that CUDA will show this process, in CUDA's order; NVML shows all.

    CUDA_VISIBLE_DEVICES lists indices or (beginnings of) UUIDs, and ends at the first that does not exist.
    """
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if visible is not None:
        names = [(str(index), nvml.nvmlDeviceGetUUID(handle)) for index, handle in enumerate(handles)]
        chosen = []
        for wanted in filter(None, visible.split(",")):
            found = [i for i, (index, uuid) in enumerate(names) if wanted == index or uuid.startswith(wanted)]
            if not found:
                break
            chosen.append(handles[found[0]])
        handles = chosen
    return tuple(_gpu(nvml, handle) for handle in handles)


def _gpu(nvml: Any, handle: Any) -> Gpu:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    try:
        free = nvml.nvmlDeviceGetMemoryInfo(handle).free // _MIB
    except nvml.NVMLError:  # where it shares the machine's memory
        free = None
    return Gpu(nvml.nvmlDeviceGetName(handle), 10 * major + minor, free)


def _version(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
