"""E3006 to E3038: what the check of a config finds. Warnings and errors alike; the check says which."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class ConfigKeyUnknown(CogTritonError):
    code = "E3006"
    fixed_by = FixedBy.OPERATOR
    message = "The key {key!r} is unknown."
    remedy = "Write {instead}, or remove it."


class ConfigKeyMissing(CogTritonError):
    code = "E3007"
    fixed_by = FixedBy.OPERATOR
    message = "The key {key!r} is missing."
    remedy = "Add it: {instead}."


class ConfigValueInvalid(CogTritonError):
    code = "E3008"
    fixed_by = FixedBy.OPERATOR
    message = "The value of {key} {problem}."
    remedy = "See docs/config.md for its values."


class ConfigHoldsSecret(CogTritonError):
    code = "E3009"
    fixed_by = FixedBy.OPERATOR
    message = "The key {key!r} holds a secret, which a config must not: a config is passed on."
    remedy = "Remove it. A token is sent in HF_TOKEN (command line) or the input hf_token (API)."


class ConfigCheckFailed(CogTritonError):
    code = "E3010"
    fixed_by = FixedBy.OPERATOR
    message = "The config {source} cannot be built: {reason}."
    remedy = "Run `cog-triton check` on it: it lists the problems, where each is and how to fix it."


class ArgumentUnknown(CogTritonError):
    code = "E3011"
    fixed_by = FixedBy.OPERATOR
    message = "{tool} is not known to have an argument --{argument}."
    remedy = "Check its spelling{nearest}; if it is spelled right, remove it."


class ArgumentInvalid(CogTritonError):
    code = "E3012"
    fixed_by = FixedBy.OPERATOR
    message = "--{argument} of {tool} cannot be {value}."
    remedy = "Write {wanted}."


class ArgumentRemoved(CogTritonError):
    code = "E3013"
    fixed_by = FixedBy.OPERATOR
    message = "{tool} no longer has an argument --{argument}."
    remedy = "Remove it: {reason}."


class ArgumentReplaced(CogTritonError):
    code = "E3014"
    fixed_by = FixedBy.OPERATOR
    message = (
        "--{argument} of {tool} is not written as TensorRT-LLM 1.2.1 has it; the build uses {instead!r}."
    )
    remedy = "Write that in its place."


class ArgumentDropped(CogTritonError):
    code = "E3015"
    fixed_by = FixedBy.OPERATOR
    message = "--{argument} of {tool} is from an older release; the build leaves it out."
    remedy = "Remove it: {reason}."


class ArgumentDeprecated(CogTritonError):
    code = "E3016"
    fixed_by = FixedBy.OPERATOR
    message = "--{argument} of {tool} works, but it is deprecated."
    remedy = "{instead}."


class ArgumentWithoutEffect(CogTritonError):
    code = "E3017"
    fixed_by = FixedBy.OPERATOR
    message = "{argument} has no effect: {reason}."
    remedy = "Remove it{instead}."


class ArgumentsContradict(CogTritonError):
    code = "E3018"
    fixed_by = FixedBy.OPERATOR
    message = "{argument} does not go with the other arguments: {reason}."
    remedy = "{fix}."


class ArgumentRefused(CogTritonError):
    code = "E3019"
    fixed_by = FixedBy.OPERATOR
    message = "{argument} is refused by TensorRT-LLM 1.2.1: {reason}."
    remedy = "Remove it."


class ExecutableUnknown(CogTritonError):
    code = "E3020"
    fixed_by = FixedBy.OPERATOR
    message = "The step {step} cannot run {executable!r}."
    remedy = "Write {wanted}."


class ScriptUnknown(CogTritonError):
    code = "E3021"
    fixed_by = FixedBy.OPERATOR
    message = "TensorRT-LLM 1.2.1 has no {script!r} that the step {step} could run."
    remedy = "Write {nearest}."


class ScriptReplaced(CogTritonError):
    code = "E3022"
    fixed_by = FixedBy.OPERATOR
    message = "TensorRT-LLM 1.2.1 no longer has {script!r}; the build runs {instead} in its place."
    remedy = "Rewrite the step for that."


class PathOutsideWorkDir(CogTritonError):
    code = "E3023"
    fixed_by = FixedBy.OPERATOR
    message = "{key} is {path!r}, which is outside the work directory."
    remedy = "Write a relative path without `..`; /src means the work directory too."


class OutputTaken(CogTritonError):
    code = "E3024"
    fixed_by = FixedBy.OPERATOR
    message = "The output of the step {step} would go to {path!r}, but {other!r} is taken."
    remedy = (
        "Give each step a directory of its own, inside no other; the build itself needs the directories"
        " model, models and tokenizer, and also checkpoint where it adds a conversion."
    )


class OutputMoved(CogTritonError):
    code = "E3025"
    fixed_by = FixedBy.OPERATOR
    message = "The output_dir of the step {step} is {named!r}, but the tool writes to {written!r}."
    remedy = "Write output_dir: {written}."


class StepInputMissing(CogTritonError):
    code = "E3026"
    fixed_by = FixedBy.OPERATOR
    message = "{argument} is {path!r}, and {reason}."
    remedy = "Write {instead}."


class ConversionAdded(CogTritonError):
    code = "E3027"
    fixed_by = FixedBy.OPERATOR
    message = (
        "No step makes the checkpoint {path!r}; the build runs {script} first, with its defaults for what the"
        ' step "build" does not say.'
    )
    remedy = "Add a step convert_to_ft or quantize that says how to make it."


class PromptCapped(CogTritonError):
    code = "E3028"
    fixed_by = FixedBy.OPERATOR
    message = (
        "Without chunked context, max_num_tokens limits prompts to {limit} tokens, though max_seq_len is"
        " {max_seq_len}."
    )
    remedy = (
        "If longer prompts are wanted, raise max_num_tokens, or serve the engine with enable_chunked_context."
    )


class RanksExceedGpus(CogTritonError):
    code = "E3029"
    fixed_by = FixedBy.OPERATOR
    message = "GPUs needed by the engine, one for each rank: {ranks}; GPUs of the machine: {gpus}."
    remedy = "Use a machine with enough GPUs, or lower the tensor, pipeline or context parallel size."


class MachineTooSmall(CogTritonError):
    code = "E3030"
    fixed_by = FixedBy.OPERATOR
    message = "The build takes about {needed} of {what}; this machine has {present}."
    remedy = "{fix}."


class ExampleUnknown(CogTritonError):
    code = "E3031"
    fixed_by = FixedBy.OPERATOR
    message = "TensorRT-LLM 1.2.1 has no example {example!r} with a convert_checkpoint.py."
    remedy = "Write {nearest}."


class TokenizerWillBeMade(CogTritonError):
    code = "E3032"
    fixed_by = FixedBy.OPERATOR
    message = (
        "The model has no tokenizer.json; the build makes one from {files}, and checks that it gives the same"
        " tokens as the model's own tokenizer."
    )
    remedy = "Nothing to do; if the model had a tokenizer.json, that would be used instead."


class EngineArgumentRefused(CogTritonError):
    code = "E3033"
    fixed_by = FixedBy.OPERATOR
    message = "The engine argument {argument} of vLLM cannot be set: {reason}."
    remedy = "Remove it, or set it as the reason says."


class EngineArgumentRemoved(CogTritonError):
    code = "E3034"
    fixed_by = FixedBy.OPERATOR
    message = "vLLM {version} no longer has the engine argument {argument}; it is left out."
    remedy = "{instead}."


class EngineArgumentLeftOut(CogTritonError):
    code = "E3039"
    fixed_by = FixedBy.OPERATOR
    message = "The engine argument {argument} of vLLM changes nothing here, and is left out: {reason}."
    remedy = "Remove it."


class ModelTooLargeForGpu(CogTritonError):
    code = "E3035"
    fixed_by = FixedBy.OPERATOR
    message = "The weights take about {weights} of each GPU; one {gpu} has {usable} for them and the cache."
    remedy = "{fix}, or use a larger GPU or a quantized checkpoint."


class ContextTooLongForGpu(CogTritonError):
    code = "E3036"
    fixed_by = FixedBy.OPERATOR
    message = "The KV cache of {gpus} has room for {room}; one sequence may have {wanted} tokens."
    remedy = "{fix}."


class ParallelismDoesNotDivide(CogTritonError):
    code = "E3037"
    fixed_by = FixedBy.OPERATOR
    message = "{argument} is {size}, and the model has {count} {what}."
    remedy = "Choose a size that {rule}."


class ArgumentUncertain(CogTritonError):
    code = "E3038"
    fixed_by = FixedBy.OPERATOR
    message = "It is not known whether {tool} of TensorRT-LLM 1.2.1 accepts {argument}."
    remedy = "Nothing to do: the build tries it. If it is refused, {fix}."
