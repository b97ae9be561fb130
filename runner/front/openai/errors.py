"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.errors import (
    ApiKeyInvalid,
    ChatTemplateMissing,
    FixedBy,
    MessagesInvalid,
    ModelNotServed,
    PromptRequired,
    PromptTooLong,
    StructuredOutputInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.errors import CogTritonError

_BAD_REQUEST = 400
_UNPROCESSABLE = 422
_TOO_MANY = 429
_SERVER = 500
# Clients look for OpenAI's names of these; the message begins with our code, as all do.
_WORDS = {ModelNotServed: "model_not_found", ApiKeyInvalid: "invalid_api_key"}
# OpenAI's names for what the core names differently.
_PARAMETERS = {"log_probs": "logprobs", "stop_sequences": "stop"}
STRUCTURE = "response_format"
"""OpenAI's own parameter for what the core calls `structured_output`; there are others."""


def openai_status(status: int) -> int:
    """OpenAI answers 400 where others answer 422."""
    return _BAD_REQUEST if status == _UNPROCESSABLE else status


def openai_error(error: CogTritonError, status: int, structure: str = STRUCTURE) -> dict[str, Any]:
    """The body that reports it, and the event that does so in a stream.

    `structure`: the parameter that constrains the text, if one was sent.
    """
    error = _renamed(error, _PARAMETERS | {"structured_output": structure})
    return {
        "error": {
            "message": str(error),
            "type": _type(error, status),
            "param": structure if isinstance(error, StructuredOutputInvalid) else _parameter(error),
            "code": _WORDS.get(type(error), error.code),
        }
    }


def _renamed(error: CogTritonError, names: Mapping[str, str]) -> CogTritonError:
    """The same error, with OpenAI's name of the parameter: the sender knows no other."""
    for key in ("parameter", "argument"):
        if (name := names.get(str(error.details.get(key)))) is not None:
            return type(error)(**error.details | {key: name})
    return error


def _type(error: CogTritonError, status: int) -> str:
    if status == _TOO_MANY:
        return "rate_limit_error"
    return (
        "server_error" if status >= _SERVER or error.fixed_by is not FixedBy.USER else "invalid_request_error"
    )


def _parameter(error: CogTritonError) -> str | None:
    if isinstance(error, ModelNotServed):
        return "model"
    if isinstance(error, MessagesInvalid | ChatTemplateMissing):
        return "messages"
    if isinstance(error, PromptRequired | PromptTooLong):
        return "prompt"
    name = error.details.get("parameter") or error.details.get("argument")
    return None if name is None else str(name)
