"""E13xx: what is wrong with a call of the HTTP APIs, before its prediction is examined."""

from __future__ import annotations

from .base import CogTritonError, FixedBy


class RequestInvalid(CogTritonError):
    code = "E1300"
    fixed_by = FixedBy.USER
    message = "The request cannot be used: {reason}."
    remedy = "Correct it and send it again."


class ParameterUnknown(CogTritonError):
    code = "E1301"
    fixed_by = FixedBy.USER
    message = "There is no parameter {parameter}."
    remedy = "{instead}."


class ParameterNotSupported(CogTritonError):
    code = "E1302"
    fixed_by = FixedBy.USER
    message = "{parameter} asks for something that is not supported here: {reason}."
    remedy = "Omit it."


class ModelNotServed(CogTritonError):
    code = "E1303"
    fixed_by = FixedBy.USER
    message = 'The model "{model}" does not exist here; this runner serves "{served}".'
    remedy = "Send that name; the operator can set SERVED_MODEL_NAME or ACCEPT_ANY_MODEL."


class ApiKeyInvalid(CogTritonError):
    code = "E1304"
    fixed_by = FixedBy.USER
    message = "{reason}."
    remedy = "Send {wanted} as `Authorization: Bearer KEY`."


class KeyLimitReached(CogTritonError):
    code = "E1305"
    fixed_by = FixedBy.USER
    message = "With this request, your key would have {count} {what} in progress; its limit is {limit}."
    remedy = "Try again when some have finished."


class PathUnknown(CogTritonError):
    code = "E1306"
    fixed_by = FixedBy.USER
    message = "There is nothing at {path}."
    remedy = (
        "Use /v1/models, /v1/completions, /v1/chat/completions, /tokenize or /detokenize;"
        " /v1/load_lora_adapter and /v1/unload_lora_adapter exist where OPERATOR_KEY is set."
    )


class PathServedElsewhere(CogTritonError):
    code = "E1350"
    fixed_by = FixedBy.USER
    message = "{path} is not served here."
    remedy = "{instead}."


class MethodNotAllowed(CogTritonError):
    code = "E1307"
    fixed_by = FixedBy.USER
    message = "{path} does not accept {method}."
    remedy = "Use {allowed}."


class LimitTooLow(CogTritonError):
    code = "E1308"
    fixed_by = FixedBy.USER
    message = "This request alone may need {count} {what}; {who} may have {limit} in progress."
    remedy = "Ask for less in one request; the operator can raise {setting}."
