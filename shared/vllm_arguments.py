"""vLLM's engine arguments: which ones a config may set, and to what values.

The table beside this module is made from vLLM's wheel of the locked version (`make vllm-arguments`).
Standard library only: the engine process reads it too.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FILE = Path(__file__).with_suffix(".json")
ALLOW_CODE = "ALLOW_MODEL_CODE"
"""The operator's variable that lets arguments name code."""

SPECULATIVE = "speculative_config"
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "list": "a list",
    "object": "a mapping",
}
_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "list": (list, tuple),
    "object": (dict,),
}


class Wrong(NamedTuple):
    """What is wrong with one argument: one of the kinds below, and what to say."""

    place: tuple[str, ...]
    kind: str
    told: str


UNKNOWN = "unknown"  # told: the nearest name, or nothing
INVALID = "invalid"  # told: what it must be
REFUSED = "refused"  # told: why
LEFT_OUT = "left out"  # told: why; vLLM has it, it changes nothing here, and is not a reason to fail
REMOVED = "removed"  # told: what took its place, or nothing; it is left out, and not a reason to fail


def code_is_allowed(environment: Mapping[str, str]) -> bool:
    """Whether the operator lets engine arguments name code."""
    return environment.get(ALLOW_CODE, "").lower() in {"1", "true", "yes", "on"}


@cache
def table() -> dict[str, Any]:
    """The file's content."""
    content: dict[str, Any] = json.loads(FILE.read_bytes())
    return content


def wrong_arguments(given: Mapping[str, Any], *, code: bool) -> Iterator[Wrong]:
    """What is wrong with engine arguments; `code`: whether the operator lets them name code."""
    known = table()
    specs = known["arguments"] | (known["code"] if code else {})
    for name, value in given.items():
        if name in specs:
            yield from wrong_value((name,), specs[name], value)
        elif name in known["code"] and not value:
            continue  # it asks for none
        elif name in known["removed"]:
            yield Wrong((name,), REMOVED, known["removed"][name] or "")
        elif name in known["code"]:
            yield Wrong((name,), REFUSED, f"it names code to run, which needs {ALLOW_CODE}=1")
        elif name in known["own"]:
            key = known["own"][name]["key"]
            yield Wrong((name,), REFUSED, f"the config's own key {key}, outside engine_args, sets that")
        elif name in known["left_out"]:
            yield Wrong((name,), LEFT_OUT, known["left_out"][name])
        elif name in known["others"]:
            yield Wrong((name,), REFUSED, "the runner sets that itself, or has no use for it")
        else:
            yield Wrong((name,), UNKNOWN, nearest(name, [*specs, *known["own"]]))


def wrong_value(place: tuple[str, ...], spec: Mapping[str, Any], value: object) -> Iterator[Wrong]:
    """What is wrong with the value of the argument at `place`."""
    if value is None:
        if not spec.get("null"):
            yield Wrong(place, INVALID, wanted(spec))
        return
    fits = isinstance(value, _TYPES[spec["type"]]) and (spec["type"] == "bool" or not isinstance(value, bool))
    choices = spec.get("choices")
    if not fits or (choices and value not in choices) or not _within(spec, value):
        yield Wrong(place, INVALID, wanted(spec) + _hint(spec, value))
    elif isinstance(value, dict) and "members" in spec:
        members = spec["members"]
        for name, one in value.items():
            if name in members:
                yield from wrong_value((*place, name), members[name], one)
            else:
                yield Wrong((*place, name), UNKNOWN, nearest(name, members))


def wanted(spec: Mapping[str, Any]) -> str:
    """`one of a, b`, or `a number above 0, at most 1`."""
    if choices := spec.get("choices"):
        listed = ", ".join(map(str, choices))
        return f"one of {listed}" if len(choices) > 1 else listed
    bounds = [
        f"{word} {spec[key]:g}"
        for key, word in (
            ("above", "above"),
            ("minimum", "at least"),
            ("maximum", "at most"),
            ("below", "below"),
        )
        if key in spec
    ]
    limits = ", ".join(bounds)
    return " ".join([_WORDS[spec["type"]], f"of {limits}" if limits.startswith("at ") else limits]).rstrip()


def _hint(spec: Mapping[str, Any], value: object) -> str:
    """Why `value`, which is not among the choices, is missing there, or which of them it may mean."""
    if isinstance(value, str) and (package := spec.get("packages", {}).get(value)):
        return f" ({value} needs the package {package}, which the images lack)"
    close = nearest(value, spec.get("choices", ()))
    return f" (did you mean {close}?)" if close else ""


def nearest(word: object, words: Sequence[str] | Mapping[str, Any]) -> str:
    """The one of `words` that `word` most likely means; nothing if there is none."""
    texts = [one for one in words if isinstance(one, str)]
    found = get_close_matches(word[:80], texts, n=1) if isinstance(word, str) else []
    return found[0] if found else ""


def _within(spec: Mapping[str, Any], value: Any) -> bool:
    return (
        ("minimum" not in spec or value >= spec["minimum"])
        and ("above" not in spec or value > spec["above"])
        and ("maximum" not in spec or value <= spec["maximum"])
        and ("below" not in spec or value < spec["below"])
    )
