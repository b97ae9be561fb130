"""What constrains a text, from an object with one of vLLM's words for it.

Standard library only: engine processes import it.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from runner.protocol.engine import StructuredOutput
from shared.errors import StructuredOutputInvalid
from shared.unreadable import why_no_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS = ("json", "json_object", "regex", "choice", "grammar")
_MAX_CHARACTERS = 1 << 17
_MAX_SHOWN = 40


def structured_output(asked: Mapping[str, Any]) -> StructuredOutput | None:
    """The constraint in `asked`: `json` (a schema), `json_object` (true), `regex`, `choice`, `grammar`.

    None if nothing is set. The engine decides whether it can follow it. Raises
    StructuredOutputInvalid.
    """
    for key in asked:
        if key not in _KEYS:
            found = get_close_matches(key[:_MAX_SHOWN], _KEYS, n=1)
            hint = f"did you mean {found[0]}?" if found else f"there are {', '.join(_KEYS)}"
            raise _invalid(f"there is no {key[:_MAX_SHOWN]!r} ({hint})")
    given = {
        key: value
        for key, value in asked.items()
        if value is not None and not (key == "json_object" and value is False)
    }
    if not given:
        return None
    if len(given) > 1:
        raise _invalid(f"{' and '.join(given)} cannot be combined")
    ((key, value),) = given.items()
    made = StructuredOutput(*_told(key, value))
    if len(made.text) > _MAX_CHARACTERS:
        raise _invalid(f"{key} has {len(made.text)} characters; at most {_MAX_CHARACTERS} are accepted")
    try:
        made.text.encode()
    except UnicodeEncodeError:
        raise _invalid(f"{key} has half of a surrogate pair, which is not a character") from None
    return made


def structured_output_of_text(text: str) -> StructuredOutput | None:
    """As `structured_output`, of a JSON object. Raises StructuredOutputInvalid."""
    try:
        asked = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise _invalid(f"it {why_no_json(problem)}") from None
    if not isinstance(asked, dict):
        raise _invalid("it is not a JSON object")
    return structured_output(asked)


def _told(key: str, value: Any) -> tuple[str, str]:
    match key, value:
        case "json_object", True:
            return "json_schema", '{"type":"object"}'
        case "json", dict() | True:
            return "json_schema", _dumped(value)
        case "json", str():
            return "json_schema", _filled(key, value)
        case "regex", str():
            return "regex", _filled(key, value)
        case "grammar", str():
            return "ebnf_grammar", _filled(key, value)
        case "choice", list() if value and all(isinstance(one, str) and one for one in value):
            return "choice", _dumped(value)
    wanted = {"json": "a schema", "json_object": "true", "choice": "a list of texts that are not empty"}
    raise _invalid(f"{key} is not {wanted.get(key, 'text')}")


def _filled(key: str, text: str) -> str:
    if not text.strip():
        raise _invalid(f"{key} is empty")
    return text


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise _invalid("it is nested too deeply") from None


def _invalid(reason: str) -> StructuredOutputInvalid:
    return StructuredOutputInvalid(reason=reason)
