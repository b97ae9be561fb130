"""Errors in OpenAI's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
_WORDS = {
    ModelNotServed: "model_not_found",
    ApiKeyInvalid: "invalid_api_key",
    PromptTooLong: "context_length_exceeded",
}
STRUCTURE = "structured_output"
"""The core's name of what constrains a text."""


class Sent(NamedTuple):
    """A parameter as it was sent."""

    name: str
    value: str | None = None
    """None: the core has the same."""


SENT: Mapping[str, Sent] = {
    "log_probs": Sent("logprobs"),
    "stop_sequences": Sent("stop"),
    STRUCTURE: Sent("response_format"),
}
"""What OpenAI's parameters are, by the core's names for them, where they differ."""


def openai_status(status: int) -> int:
    """OpenAI answers 400 where others answer 422."""
    return _BAD_REQUEST if status == _UNPROCESSABLE else status


def openai_error(error: CogTritonError, status: int, sent: Mapping[str, Sent] = SENT) -> dict[str, Any]:
    """The body that reports it, and the event that does so in a stream; `sent` is as SENT."""
    error = _as_sent(error, sent)
    return {
        "error": {
            "message": str(error),
            "type": _type(error, status),
            "param": sent[STRUCTURE].name
            if isinstance(error, StructuredOutputInvalid)
            else _parameter(error),
            "code": _WORDS.get(type(error), error.code),
        }
    }


def _as_sent(error: CogTritonError, sent: Mapping[str, Sent]) -> CogTritonError:
    """The same error, with the parameter's name and value that were sent: the sender knows no other."""
    for key in ("parameter", "argument"):
        if (one := sent.get(str(error.details.get(key)))) is not None:
            value = {} if one.value is None else {"value": one.value}
            return type(error)(**error.details | {key: one.name} | value)
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
