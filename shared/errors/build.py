"""E3xxx: what goes wrong while an engine is built."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class ConfigUnreachable(CogTritonError):
    code = "E3000"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} cannot be read: {reason}."
    remedy = "Check the path or the address, and that this machine can reach it."


class ConfigTooLarge(CogTritonError):
    code = "E3001"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} is larger than {limit} bytes."
    remedy = "Send the YAML file itself, not the model."


class ConfigNotYaml(CogTritonError):
    code = "E3002"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} is not valid YAML: {reason}."
    remedy = "Correct the YAML."


class ConfigDuplicateKey(CogTritonError):
    code = "E3003"
    fixed_by = FixedBy.OPERATOR
    message = "The key {key!r} appears twice in the config {source}, on lines {first} and {second}."
    remedy = "Keep one of them."


class ConfigInvalid(CogTritonError):
    code = "E3004"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} cannot be used: {reason}."
    remedy = "See docs/config.md for every key."


class EngineNotInImage(CogTritonError):
    code = "E3005"
    fixed_by = FixedBy.OPERATOR
    message = 'This builder cannot build for the engine "{engine}"; it has: {available}.'
    remedy = "Build with the image cog-triton-builder, which has every engine."


class ModelNotFound(CogTritonError):
    code = "E3100"
    fixed_by = FixedBy.OPERATOR
    message = "The model {model!r} cannot be found: {reason}."
    remedy = (
        "Check the name, and the token, if one is set; a private model needs one: HF_TOKEN (command line), or"
        " the input hf_token (API)."
    )


class ModelGated(CogTritonError):
    code = "E3101"
    fixed_by = FixedBy.OPERATOR
    message = "Access to the model {model!r} is restricted."
    remedy = (
        "Accept its terms on the hub, and provide a token of the account that did: HF_TOKEN (command line)"
        " or the input hf_token (API)."
    )


class RevisionNotFound(CogTritonError):
    code = "E3102"
    fixed_by = FixedBy.OPERATOR
    message = "The model {model!r} has no revision {revision!r}."
    remedy = "Use a branch, tag or commit that exists; for a folder, omit the revision."


class DownloadFailed(CogTritonError):
    code = "E3103"
    fixed_by = FixedBy.OPERATOR
    message = "The download of {model!r} failed: {reason}."
    remedy = (
        "Check the address and the network, and for a model on the hub its cache (HF_HOME, or HF_HUB_CACHE if"
        " that is set); then try again. Files that have come whole from the hub are kept there."
    )


class ModelFilesMissing(CogTritonError):
    code = "E3104"
    fixed_by = FixedBy.OPERATOR
    message = "The model {model!r} has no {missing}."
    remedy = "Use a checkpoint in safetensors format, with its tokenizer's files."


class NotEnoughSpace(CogTritonError):
    code = "E3105"
    fixed_by = FixedBy.OPERATOR
    message = "The disk is too small: {reason}."
    remedy = (
        "Free space there, or choose a larger disk with TMPDIR (for the build), HF_HOME or HF_HUB_CACHE"
        " (models), WEIGHTS_CACHE (for what is served) or the archive's place (-o; BUILDER_OUTPUT_DIR in the"
        " builder's API)."
    )


class ModelCorrupt(CogTritonError):
    code = "E3106"
    fixed_by = FixedBy.OPERATOR
    message = "{file} of the model {model!r} differs from the hub's copy: {reason}."
    remedy = "Try again: the file was removed and will be downloaded again. If this recurs, check the disk."


class ModelFolderUnusable(CogTritonError):
    code = "E3107"
    fixed_by = FixedBy.OPERATOR
    message = "The model folder {path!r} cannot be used: {reason}."
    remedy = (
        "Check the path (in a config, a relative one starts at the config's folder), and the permissions"
        " there."
    )


class ModelTarUnusable(CogTritonError):
    code = "E3108"
    fixed_by = FixedBy.OPERATOR
    message = "The tar {model!r} cannot be used: {reason}."
    remedy = "Use a tar of the model's directory, with config.json at its top level."


class UnsupportedArchitecture(CogTritonError):
    code = "E3200"
    fixed_by = FixedBy.OPERATOR
    message = "The architecture {architecture!r} cannot be converted; the builder converts {supported}."
    remedy = "Use a model with a supported architecture, or another engine."


class CheckpointInvalid(CogTritonError):
    code = "E3201"
    fixed_by = FixedBy.OPERATOR
    message = "The checkpoint cannot be used: {reason}."
    remedy = (
        "Download it again if it is damaged or incomplete, and check that config.json belongs to these"
        " weights; correct a file that is not valid; if it is not supported, use another model or engine."
    )


class ConversionFailed(CogTritonError):
    code = "E3202"
    fixed_by = FixedBy.US
    message = 'The step "{step}" failed: {reason}.'
    remedy = (
        "Check the log of the build; what TensorRT-LLM's tools wrote is beside the archive, in a file with"
        " the archive's name and .log appended."
    )


class HostMemoryExhausted(CogTritonError):
    code = "E3203"
    fixed_by = FixedBy.OPERATOR
    message = 'The step "{step}" was killed by signal 9 (SIGKILL), probably because memory ran out.'
    remedy = "Use a machine with more memory, or lower `workers` if the step has that argument."


class GpuMemoryExhausted(CogTritonError):
    code = "E3204"
    fixed_by = FixedBy.OPERATOR
    message = 'The step "{step}" ran out of GPU memory: {reason}.'
    remedy = "Lower max_batch_size, max_num_tokens or max_seq_len, quantize, or use more or larger GPUs."


class NotSupportedOnGpu(CogTritonError):
    code = "E3205"
    fixed_by = FixedBy.OPERATOR
    message = "{argument}: {value} is not supported on GPUs with SM {sm}."
    remedy = "Omit that argument, or build on another kind of GPU."


class ToolArgumentsRefused(CogTritonError):
    code = "E3206"
    fixed_by = FixedBy.OPERATOR
    message = 'The tool of the step "{step}" refuses its arguments: {reason}.'
    remedy = "Fix them in the config."


class GpuNotFound(CogTritonError):
    code = "E3207"
    fixed_by = FixedBy.OPERATOR
    message = 'The step "{step}" found no GPU: {reason}.'
    remedy = "Give the builder an NVIDIA GPU and its driver (docker run --gpus all)."


class EngineEnvironmentBroken(CogTritonError):
    code = "E3208"
    fixed_by = FixedBy.OPERATOR
    message = "The environment of TensorRT-LLM does not work: {reason}."
    remedy = "Use the builder image unchanged, with the versions that it pins."


class EngineVersionMismatch(CogTritonError):
    code = "E3209"
    fixed_by = FixedBy.OPERATOR
    message = 'The step "{step}" read a file that another version wrote: {reason}.'
    remedy = "Run every step in one build, without timing caches and checkpoints of other versions."


class TokenizerNotConverted(CogTritonError):
    code = "E3210"
    fixed_by = FixedBy.OPERATOR
    message = "The model has no tokenizer.json, and none can be made from its tokenizer: {reason}."
    remedy = "Use a model that has one, or add one to a copy of the model."


class TokenizerFilesDisagree(CogTritonError):
    code = "E3211"
    fixed_by = FixedBy.OPERATOR
    message = "The files of the model's tokenizer disagree: {reason}."
    remedy = "Correct one of the two in a copy of the model, or use a revision of it in which they agree."


class PackageFailed(CogTritonError):
    code = "E3300"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive cannot be written to {path}: {reason}."
    remedy = (
        "Check the path, and that this user may write there; if a file is named, that it can be read and does"
        " not change."
    )


class OutputRefused(CogTritonError):
    code = "E3302"
    fixed_by = FixedBy.OPERATOR
    message = "The output cannot be written to {path}: {reason}."
    remedy = "{fix}."


class WorkFolderUnusable(CogTritonError):
    code = "E3303"
    fixed_by = FixedBy.OPERATOR
    message = "There is no place for the files of the build: {reason}."
    remedy = "Set TMPDIR to a writable directory on a disk with room for the engine."


class ModelImageFailed(CogTritonError):
    code = "E3301"
    fixed_by = FixedBy.OPERATOR
    message = "The model's image cannot be pushed to {dest}: {reason}."
    remedy = "Install skopeo, log in to both registries with `docker login`, and check both names."
