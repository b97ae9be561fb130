"""From the bytes of a body to what it asks for, or to an error that names the parameter."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from runner.front.openai.parameters import (
    ChatParameters,
    CompletionParameters,
    Parameters,
    StreamOptions,
    TokenizeParameters,
)
from shared.errors import ParameterNotSupported, ParameterUnknown, RequestInvalid
from shared.unreadable import why_no_json
from shared.validation import visible, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic_core import ErrorDetails

    from shared.errors import CogTritonError

_Body = TypeVar("_Body", bound=BaseModel)
_MAX_SHOWN = 80


def read(kind: type[_Body], body: bytes) -> _Body:
    """The parameters in a body. Raises RequestInvalid, ParameterUnknown and ParameterNotSupported."""
    try:
        content = orjson.loads(body)
    except ValueError as problem:
        raise RequestInvalid(parameter=None, reason=f"the body {why_no_json(problem)}") from None
    if not isinstance(content, dict):
        raise RequestInvalid(parameter=None, reason="the body is not a JSON object")
    try:
        parameters = kind.model_validate(content)
    except ValidationError as invalid:
        raise _coded(kind, invalid.errors(include_url=False)[0]) from None
    _check_together(parameters)
    return parameters


def _check_together(parameters: BaseModel) -> None:
    """What one parameter requires of another."""
    match parameters:
        case Parameters(stream_options=StreamOptions()) if not parameters.stream:
            raise RequestInvalid(parameter="stream_options", reason="stream_options needs stream to be true")
        case CompletionParameters(best_of=int(best_of)) if best_of != (parameters.n or 1):
            raise ParameterNotSupported(parameter="best_of", reason="all n texts are sent")
        case ChatParameters(top_logprobs=int(most)) if most and not parameters.logprobs:
            raise RequestInvalid(parameter="top_logprobs", reason="top_logprobs needs logprobs to be true")
        case TokenizeParameters() if (parameters.prompt is None) == (parameters.messages is None):
            both = parameters.prompt is not None
            reason = (
                "prompt and messages were both sent" if both else "either a prompt or messages are needed"
            )
            raise RequestInvalid(parameter="prompt", reason=reason)


def _coded(kind: type[BaseModel], detail: ErrorDetails) -> CogTritonError:
    place = _dotted(detail["loc"])
    match detail["type"]:
        case "not_done":  # raised by parameters.py
            name = _dotted((*detail["loc"], detail["ctx"]["name"]))
            return ParameterNotSupported(parameter=name, reason=detail["ctx"]["why"])
        case "extra_forbidden":
            meant = _meant(str(detail["loc"][-1])[:_MAX_SHOWN], _known(kind, detail["loc"]))
            return ParameterUnknown(
                parameter=place, instead=f"Write {meant}, or omit it" if meant else "Omit it"
            )
        case _:
            return RequestInvalid(parameter=place or None, reason=f"{place or 'the body'} {wanted(detail)}")


def _meant(name: str, known: Sequence[str]) -> str | None:
    """The nearest one, but rather one with the same first word: `max_completion_tokens` is as near to
    `min_tokens` as to `max_tokens`.
    """
    near = get_close_matches(name, known)
    first, *_ = name.split("_")
    return next((one for one in near if one.split("_")[0] == first), next(iter(near), None))


def _known(kind: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The names that would be valid in place of an unknown one."""
    for key in place[:-1]:
        if isinstance(key, str):
            annotation = kind.model_fields[key].annotation
            kind = next(one for one in _classes(annotation) if issubclass(one, BaseModel))
    return [field.alias or name for name, field in kind.model_fields.items()]


def _classes(annotation: object) -> list[type]:
    inner = [one for argument in getattr(annotation, "__args__", ()) for one in _classes(argument)]
    return [annotation, *inner] if isinstance(annotation, type) else inner


def _dotted(place: Sequence[str | int]) -> str:
    """`messages[0].content`, as OpenAI writes it."""
    text = ""
    for part in place:
        if part == "[key]":  # the key before it is what is wrong
            continue
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f"{'.' if text else ''}{visible(part[:_MAX_SHOWN])}"
    return text
