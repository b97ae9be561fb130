"""What is wrong with a config: where, and a coded error that says what, and which keys would be right."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel

from shared.errors import (
    CogTritonError,
    ConfigHoldsSecret,
    ConfigKeyMissing,
    ConfigKeyUnknown,
    ConfigValueInvalid,
)
from shared.secrets import names_secret
from shared.validation import wanted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from .document import Document, Place

_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    place: Place
    error: CogTritonError

    def what(self) -> str:
        """`instantiate.server: unknown key (did you mean x?)`: without code, line and remedy."""
        return f"{dotted(self.place)}: {self.error.details['short']}"


def in_engine(document: Document, engines: Sequence[str]) -> Problem:
    """Say that the key `engine` is not one of `engines`."""
    if "engine" not in document.data:
        choices = f"one of {', '.join(engines)}"
        return Problem(
            ("engine",),
            ConfigKeyMissing(key="engine", instead=f"it is {choices}", short=f"missing; it is {choices}"),
        )
    return _invalid(("engine",), not_among(engines, document.data["engine"]))


def in_keys(document: Document, ignored: frozenset[Place] = frozenset()) -> Iterator[Problem]:
    """Name the keys that hold secrets: a config is copied into engine.tar."""
    for place in document.positions:
        if place and place not in ignored and names_secret(str(place[-1])):
            short = "a secret must not be in a config: remove it"
            yield Problem(place, ConfigHoldsSecret(key=dotted(place), short=short))


def in_values(error: ValidationError, kind: type[BaseModel], document: Document) -> Iterator[Problem]:
    """Everything that pydantic found wrong with a config of `kind`, ordered by line."""
    details = error.errors(include_url=False)
    for detail in sorted(details, key=lambda one: document.positions.get(one["loc"], (0, 0))):
        if not names_secret(str(detail["loc"][-1])):
            yield _problem(detail, kind)


def _problem(detail: ErrorDetails, kind: type[BaseModel]) -> Problem:
    place, value = detail["loc"], detail["input"]
    if place[-1] == "[key]":  # the key before it is what is wrong
        place = place[:-1]
    match detail["type"]:
        case "missing":
            instead = "docs/config.md says what it is"
            return Problem(place, ConfigKeyMissing(key=dotted(place), instead=instead, short="missing"))
        case "extra_forbidden":
            *parents, key = place
            keys = list(_section(kind, parents).model_fields)
            found = nearest(key, keys)
            short = "unknown key" + (_did_you_mean(found) or f" (known here: {', '.join(keys)})")
            instead = found or (f"one of {', '.join(keys)}" if keys[1:] else keys[0])
            return Problem(place, ConfigKeyUnknown(key=dotted(place), instead=instead, short=short))
        case "literal_error":
            choices = detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return _invalid(place, not_among(choices, value))
        case "value_error":
            return _invalid(place, str(detail["ctx"]["error"]))
        case "string_type" if not isinstance(value, dict | list | None):
            return _invalid(place, f"must be text{but_is(value)} (write it in quotes)")
        case _:
            problem = wanted(detail, mapping="a mapping")
            return _invalid(place, problem + (but_is(value) if problem.startswith("must ") else ""))


def _invalid(place: Place, problem: str) -> Problem:
    return Problem(place, ConfigValueInvalid(key=dotted(place), problem=problem, short=problem))


def not_among(choices: Sequence[str], value: object) -> str:
    """`must be one of a, b, not 'c' (did you mean a?)`."""
    return f"must be one of {', '.join(choices)}{but_is(value)}{_did_you_mean(nearest(value, choices))}"


def but_is(value: object) -> str:
    """`, not 'x'`; nothing if that would be long."""
    if isinstance(value, dict | list):
        return f", not a {'mapping' if isinstance(value, dict) else 'list'}"
    shown = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return f", not {shown}" if value != "" and len(shown) <= _MAX_SHOWN else ""


def nearest(word: object, words: Sequence[str]) -> str | None:
    """The one of `words` that `word` most likely means."""
    found = get_close_matches(word[:80], words, n=1) if isinstance(word, str) else []
    return found[0] if found else None


def dotted(place: Place) -> str:
    """`build.args.max_batch_size`."""
    return ".".join(str(part) if part != "" and str(part).isprintable() else ascii(part) for part in place)


def _did_you_mean(word: str | None) -> str:
    return f" (did you mean {word}?)" if word else ""


def _section(kind: type[BaseModel], place: Sequence[str | int]) -> type[BaseModel]:
    """The model of the mapping at `place`; every step on the way is a field that holds a model, or None."""
    for key in place:
        annotation = kind.model_fields[str(key)].annotation
        members = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
        kind = next(one for one in members if issubclass(one, BaseModel))
    return kind
