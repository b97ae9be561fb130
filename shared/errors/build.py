"""E3xxx: what goes wrong while an engine is built."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class ConfigUnreachable(CogTritonError):
    code = "E3000"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} cannot be fetched: {reason}."
    remedy = "Check the address and that this machine reaches it."


class ConfigTooLarge(CogTritonError):
    code = "E3001"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} is larger than {limit} bytes."
    remedy = "Send the YAML file itself, not the model."


class ConfigNotYaml(CogTritonError):
    code = "E3002"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} is not valid YAML: {reason}."
    remedy = "Mend it there."


class ConfigDuplicateKey(CogTritonError):
    code = "E3003"
    fixed_by = FixedBy.OPERATOR
    message = "The key {key!r} stands twice in the config {source}, in lines {first} and {second}."
    remedy = "Keep one of them."


class ConfigInvalid(CogTritonError):
    code = "E3004"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} does not fit its schema: {reason}."
    remedy = "See docs/config.md for every key."


class EngineNotInImage(CogTritonError):
    code = "E3005"
    fixed_by = FixedBy.OPERATOR
    message = 'This builder cannot build for the engine "{engine}"; it has: {available}.'
    remedy = "Use the builder image of that engine."


class ModelNotFound(CogTritonError):
    code = "E3100"
    fixed_by = FixedBy.OPERATOR
    message = "There is no model {model!r}: {reason}."
    remedy = "Check the name, and send hf_token if the model is private."


class ModelGated(CogTritonError):
    code = "E3101"
    fixed_by = FixedBy.OPERATOR
    message = "Access to the model {model!r} is restricted."
    remedy = "Accept its terms on the hub, and send hf_token of that account."


class RevisionNotFound(CogTritonError):
    code = "E3102"
    fixed_by = FixedBy.OPERATOR
    message = "The model {model!r} has no revision {revision!r}."
    remedy = "Use a branch, tag or commit that exists."


class DownloadFailed(CogTritonError):
    code = "E3103"
    fixed_by = FixedBy.OPERATOR
    message = "The download of {model!r} failed: {reason}."
    remedy = "Check the network, then build again: what has arrived is kept."


class ModelFilesMissing(CogTritonError):
    code = "E3104"
    fixed_by = FixedBy.OPERATOR
    message = "The model {model!r} has no {missing}."
    remedy = "Use a checkpoint in safetensors with a tokenizer.json."


class UnsupportedArchitecture(CogTritonError):
    code = "E3200"
    fixed_by = FixedBy.OPERATOR
    message = "The architecture {architecture!r} cannot be converted; these can: {supported}."
    remedy = "Use a model of one of these, or another engine."


class CheckpointInvalid(CogTritonError):
    code = "E3201"
    fixed_by = FixedBy.OPERATOR
    message = "The checkpoint cannot be converted: {reason}."
    remedy = "Download it again, and check that config.json belongs to these weights."


class ConversionFailed(CogTritonError):
    code = "E3202"
    fixed_by = FixedBy.US
    message = 'The step "{step}" failed: {reason}.'
    remedy = "See the log of the step."


class PackageFailed(CogTritonError):
    code = "E3300"
    fixed_by = FixedBy.OPERATOR
    message = "The engine archive cannot be written to {path}: {reason}."
    remedy = "Check the free space and the permissions there."


class ModelImageFailed(CogTritonError):
    code = "E3301"
    fixed_by = FixedBy.OPERATOR
    message = "The model's image cannot be pushed to {dest}: {reason}."
    remedy = "Install skopeo, `docker login` to both registries, and check both names."
