"""E4xxx: what keeps a runner from starting."""

from __future__ import annotations

from shared.secrets import public_text

from .base import CogTritonError, FixedBy

_MAX_SHOWN = 200


class PartNotInstalled(CogTritonError):
    code = "E4000"
    fixed_by = FixedBy.OPERATOR
    message = 'The part "{part}" of cog-triton is missing at {place}.'
    remedy = "Use an image that has it; in a checkout, `make setup` makes what needs no GPU."


class TritonFailedToStart(CogTritonError):
    code = "E4001"
    fixed_by = FixedBy.OPERATOR
    message = "Triton did not start: {reason}."
    remedy = "Check the runner's log."


class SettingInvalid(CogTritonError):
    code = "E4002"
    fixed_by = FixedBy.OPERATOR
    message = "The setting {setting} is {value}, but {reason}."
    remedy = "See docs/environment.md, or for an option `--help`."

    def __init__(self, *, setting: object, value: object, reason: str) -> None:
        """`value`: None for a setting that has none."""
        super().__init__(setting=setting, value="not set" if value is None else _shown(value), reason=reason)


def _shown(value: object) -> str:
    """As it may be shown: a setting for a place may have got what should be at that place."""
    if not isinstance(value, str):
        return repr(value)
    if "PRIVATE KEY" in value:
        return repr("***")
    text = public_text(value)
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


class WorkerDied(CogTritonError):
    code = "E4005"
    fixed_by = FixedBy.OPERATOR
    message = "The HTTP server, or its worker, could not be reached: it ended, or was not ready in time."
    remedy = (
        "Check the runner's log: the server may have run out of memory, or PATH may lead to another `python`."
    )


class SetupTimedOut(CogTritonError):
    code = "E4006"
    fixed_by = FixedBy.OPERATOR
    message = "The set-up did not finish within {seconds:g} s."
    remedy = "Check the log above for what it waited for, or raise SETUP_TIMEOUT."


class RunDirectoryUnusable(CogTritonError):
    code = "E4007"
    fixed_by = FixedBy.OPERATOR
    message = "There is no place for the runner's sockets and small files: {reason}."
    remedy = "Set TMPDIR to a writable directory, or mount a tmpfs at /tmp."


class ServerDiedTooOften(CogTritonError):
    code = "E4008"
    fixed_by = FixedBy.OPERATOR
    message = "The HTTP server died {times} times within five minutes, before the runner was ever READY."
    remedy = "Check the log above for why it dies; it may have run out of memory."


class GpusMissing(CogTritonError):
    code = "E4010"
    fixed_by = FixedBy.OPERATOR
    message = "GPUs needed by the engine: {needed}; shown by this machine: {found} ({reason})."
    remedy = (
        "Run the container with GPUs (--gpus all), or check CUDA_VISIBLE_DEVICES and nvidia-smi; if the"
        " machine has too few GPUs, spread the engine over several hosts (docs/several-hosts.md)."
    )


class GpuMismatch(CogTritonError):
    code = "E4011"
    fixed_by = FixedBy.OPERATOR
    message = "The engine was built for SM {engine_sm}; GPU {index} ({gpu}) has SM {gpu_sm}."
    remedy = "Run it on the GPU that it was built for, or build it again on this one."


class DriverTooOld(CogTritonError):
    code = "E4012"
    fixed_by = FixedBy.OPERATOR
    message = "The NVIDIA driver {driver} supports CUDA {driver_cuda}; this image needs CUDA {needed_cuda}."
    remedy = "Install driver {oldest} or newer on the host."


class SharedMemoryTooSmall(CogTritonError):
    code = "E4013"
    fixed_by = FixedBy.OPERATOR
    message = "Shared memory has {available} MiB free; an engine on {ranks} GPUs needs {needed} MiB."
    remedy = (
        "Run the container with more (--shm-size=1g; in Kubernetes, an emptyDir with `medium: Memory` at"
        " /dev/shm)."
    )


class LockedMemoryTooSmall(CogTritonError):
    code = "E4014"
    fixed_by = FixedBy.OPERATOR
    message = "At most {limit} MiB may be locked in memory; an engine on {ranks} GPUs needs {needed} MiB."
    remedy = (
        "Run the container with --ulimit memlock=-1; in Kubernetes, set LimitMEMLOCK=infinity for the"
        " service of the node's container runtime."
    )


class GpuNotOfImage(CogTritonError):
    code = "E4015"
    fixed_by = FixedBy.OPERATOR
    message = "This image holds the device code for SM {image_sm} only; GPU {index} ({gpu}) has SM {gpu_sm}."
    remedy = "Run the image for that GPU, or the one whose name ends in -full, which is for SM 80 and newer."


class WeightsTooLargeForGpu(CogTritonError):
    code = "E4017"
    fixed_by = FixedBy.OPERATOR
    message = "GPU {index} ({gpu}) has {free} MiB free; the weights alone take {needed} MiB of each GPU."
    remedy = (
        "End other processes on the GPU (nvidia-smi), or use more or larger GPUs, or a quantized checkpoint."
    )


class MemoryTooSmall(CogTritonError):
    code = "E4018"
    fixed_by = FixedBy.OPERATOR
    message = (
        "At most {limit} MiB of memory can be used here; the engine needs {needed} MiB (processes:"
        " {processes})."
    )
    remedy = (
        "Use a machine with more, or give the container more (--memory; in Kubernetes,"
        " resources.limits.memory)."
    )


class EngineArchiveMalformed(CogTritonError):
    code = "E4100"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive cannot be read: {reason}."
    remedy = "Build or download it again; if the reason is how it was packed, pack it again."


class EngineArchiveUnsafe(CogTritonError):
    code = "E4101"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive holds {member!r}, which {reason}."
    remedy = "Do not use an archive from a source that you do not trust; build it again."


class EngineArchiveVersion(CogTritonError):
    code = "E4102"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive has format version {version}; this runner reads {supported}."
    remedy = "Build the engine again with the builder of this version."


class EngineKindMismatch(CogTritonError):
    code = "E4103"
    fixed_by = FixedBy.OPERATOR
    message = 'The engine "{kind}" is needed{why}; this image serves: {available}.'
    remedy = "Use the runner image of that engine, or build the model for one that this image serves."


class EngineArchiveCorrupt(CogTritonError):
    code = "E4104"
    fixed_by = FixedBy.OPERATOR
    message = "{file} in the engine archive does not match the manifest: {reason}."
    remedy = "Download or build the archive again."


class EngineArchiveTooLarge(CogTritonError):
    code = "E4105"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive unpacks to more than {limit}."
    remedy = "Check that it is an engine; if the limit is a number of bytes, MAX_ENGINE_BYTES can raise it."


class VllmRepositoryInvalid(CogTritonError):
    code = "E4107"
    fixed_by = FixedBy.OPERATOR
    message = "{path} cannot be served by vLLM: {reason}."
    remedy = "{fix}."


class ModelRepositoryNotServed(CogTritonError):
    code = "E4106"
    fixed_by = FixedBy.OPERATOR
    message = "{path} is a model repository for Triton backends that are not available here ({backends})."
    remedy = (
        "Use {engine} with the model's tokenizer.json beside its config.json; `cog-triton model-repository`"
        " writes a repository for it."
    )


class NothingCompiled(CogTritonError):
    code = "E4108"
    fixed_by = FixedBy.OPERATOR
    message = "{cache} contains nothing that vLLM compiled for {engine}."
    remedy = "{fix}."


class WeightsUnreachable(CogTritonError):
    code = "E4200"
    fixed_by = FixedBy.OPERATOR
    message = "The engine {source} cannot be read: {reason}."
    remedy = "Check the path or the address, and that this machine can reach it."


class WeightsNotFound(CogTritonError):
    code = "E4201"
    fixed_by = FixedBy.OPERATOR
    message = "There is no engine at {source}."
    remedy = (
        "Give the URL or path of an engine.tar, or a directory that holds an unpacked one (in a container: "
        "in COG_WEIGHTS)."
    )


class WeightsNotSet(CogTritonError):
    code = "E4202"
    fixed_by = FixedBy.OPERATOR
    message = "Neither COG_WEIGHTS nor ENGINE_DIR is set."
    remedy = "Set COG_WEIGHTS to the URL or path of an engine.tar, or for vLLM to the name of a model."


class PortInUse(CogTritonError):
    code = "E4003"
    fixed_by = FixedBy.OPERATOR
    message = "Port {port} is already in use."
    remedy = "Choose another port, or end the program that uses it."


class ServerNotReady(CogTritonError):
    code = "E4004"
    fixed_by = FixedBy.OPERATOR
    message = "The server did not become ready: {reason}."
    remedy = "Check its log for the reason."


class WeightsNotStored(CogTritonError):
    code = "E4203"
    fixed_by = FixedBy.OPERATOR
    message = "The engine cannot be unpacked to {path}: {reason}."
    remedy = "Check the free space and the permissions there."


class HostNotJoined(CogTritonError):
    code = "E4016"
    fixed_by = FixedBy.OPERATOR
    message = "This host cannot join {address}: {reason}."
    remedy = (
        "On all hosts, run the same image with the same HOSTS_SECRET and the same engine, one that needs"
        " GPUs."
    )
