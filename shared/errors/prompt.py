"""E1xxx: what the sender of a prediction can fix."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class GenericError(CogTritonError):
    code = "E1000"
    fixed_by = FixedBy.US
    message = "An unexpected error occurred."
    remedy = "Report it, with the log."


class PromptRequired(CogTritonError):
    code = "E1001"
    fixed_by = FixedBy.USER
    message = "A prompt is required, but the formatted prompt is empty."
    remedy = "Send a prompt that is not blank."


class PromptTooLong(CogTritonError):
    code = "E1002"
    fixed_by = FixedBy.USER
    message = "The prompt has {prompt_tokens} tokens; the maximum input length is {max_prompt_tokens}."
    remedy = "Send a shorter prompt."


class BadPromptTemplate(CogTritonError):
    code = "E1003"
    fixed_by = FixedBy.USER
    message = "The prompt template has no place for what was sent: {reason}."
    remedy = "Add the field to prompt_template, or omit the input."


class PromptTemplateError(CogTritonError):
    code = "E1004"
    fixed_by = FixedBy.USER
    message = "The prompt template is not valid: {reason}."
    remedy = (
        "Use the fields {{prompt}} and {{system_prompt}} only, and write {{{{ and }}}} for literal braces."
    )


class MessagesInvalid(CogTritonError):
    code = "E1005"
    fixed_by = FixedBy.USER
    message = "The messages cannot be used: {reason}."
    remedy = (
        'Send a JSON list of objects like {{"role": "user", "content": "..."}} that the chat template of the'
        " model accepts, with one system prompt at most, and neither prompt nor prompt_template; if they are"
        " too long or too many, send fewer or shorter ones."
    )


class ChatTemplateMissing(CogTritonError):
    code = "E1006"
    fixed_by = FixedBy.USER
    message = "Messages were sent, but the model of this engine has no chat template."
    remedy = (
        "Send a prompt as the model expects it: in OpenAI's API to /v1/completions, in Cog's with a "
        "prompt_template if it needs one."
    )


class PreparationTimedOut(CogTritonError):
    code = "E1007"
    fixed_by = FixedBy.USER
    message = "The prompt was not prepared within {seconds:g} s."
    remedy = "Send a shorter one, or try again: it may have waited behind other long prompts."


class InvalidArgumentMinTokens(CogTritonError):
    code = "E1101"
    fixed_by = FixedBy.USER
    message = "Both min_tokens and its old name min_new_tokens were sent."
    remedy = "Send min_tokens only."


class InvalidArgumentMaxTokens(CogTritonError):
    code = "E1102"
    fixed_by = FixedBy.USER
    message = "Both max_tokens and its old name max_new_tokens were sent."
    remedy = "Send max_tokens only."


class ParameterNotHonoured(CogTritonError):
    code = "E1103"
    fixed_by = FixedBy.USER
    message = 'The engine "{engine}" cannot honour {parameter}={value}.'
    remedy = "Omit {parameter}, or use an engine that honours it."


class InvalidArgument(CogTritonError):
    code = "E1104"
    fixed_by = FixedBy.USER
    message = "{argument} is {value}, but {reason}."
    remedy = "Send another value, or omit it."


class StructuredOutputInvalid(CogTritonError):
    code = "E1105"
    fixed_by = FixedBy.USER
    message = "The output cannot be constrained to that structure: {reason}."
    remedy = "Correct it, or send a simpler JSON schema, regular expression, list of choices or grammar."


class AdapterUnknown(CogTritonError):
    code = "E1106"
    fixed_by = FixedBy.USER
    message = 'There is no adapter "{name}" here.'
    remedy = (
        "Send the name of an adapter that there is; where OpenAI's API is served, /v1/models lists them. If "
        "this adapter is among them, check that its files are still there, and that the runner may read them."
    )
