"""What is wrong with a config, in words: where, what, and which keys or values would be right."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel

from shared.secrets import names_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from .document import Document, Place

_WANTED = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
}


def in_engine(document: Document, engines: Sequence[str]) -> str:
    """Say that the key `engine` names none of `engines`."""
    if "engine" not in document.data:
        return f"engine: missing; it is one of {', '.join(engines)}"
    return f"{_where(('engine',), document)}: {_not_among(engines, document.data['engine'])}"


def in_keys(document: Document) -> Iterator[str]:
    """Name the keys that hold secrets: a config is copied into engine.tar."""
    for place in document.lines:
        if place and names_secret(str(place[-1])):
            yield f"{_where(place, document)}: a secret must not stand in a config, send it as an input"


def in_values(error: ValidationError, kind: type[BaseModel], document: Document) -> Iterator[str]:
    """Everything that pydantic found in a config of `kind`."""
    details = error.errors(include_url=False)
    for detail in sorted(details, key=lambda one: document.lines.get(one["loc"], 0)):
        if not names_secret(str(detail["loc"][-1])):
            yield f"{_where(detail['loc'], document)}: {_what(detail, kind)}"


def _what(detail: ErrorDetails, kind: type[BaseModel]) -> str:
    value = detail["input"]
    match detail["type"]:
        case "missing":
            return "missing"
        case "extra_forbidden":
            *parents, key = detail["loc"]
            keys = list(_section(kind, parents).model_fields)
            return "unknown key" + (_nearest(key, keys) or f" (known here: {', '.join(keys)})")
        case "literal_error":
            return _not_among(
                detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", "), value
            )
        case "value_error":
            return str(detail["ctx"]["error"])
        case "string_type" if not isinstance(value, dict | list | None):
            return f"must be text{_but_is(value)} (write it in quotes)"
        case known:
            wanted = _WANTED.get(known) or detail["msg"].replace("Input should", "must")
            return f"{wanted}{_but_is(value)}"


def _not_among(choices: Sequence[str], value: object) -> str:
    return f"must be one of {', '.join(choices)}{_but_is(value)}{_nearest(value, choices)}"


def _but_is(value: object) -> str:
    if isinstance(value, dict | list):
        return f", not a {'mapping' if isinstance(value, dict) else 'list'}"
    shown = "null" if value is None else repr(value)
    return f", not {shown}" if value != "" and len(shown) <= 40 else ""


def _nearest(word: object, words: Sequence[str]) -> str:
    found = get_close_matches(word[:80], words, n=1) if isinstance(word, str) else []
    return f" (did you mean {found[0]}?)" if found else ""


def _where(place: Place, document: Document) -> str:
    dotted = ".".join(str(part) if str(part).isprintable() else ascii(part) for part in place)
    return f"line {document.lines[place]}: {dotted}" if place in document.lines else dotted


def _section(kind: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The model of the mapping at `place`; every step there is a field that holds a model, or None."""
    for key in place:
        annotation = kind.model_fields[str(key)].annotation
        kind = next(one for one in get_args(annotation) if issubclass(one, BaseModel))
    return kind
