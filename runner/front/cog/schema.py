"""The inputs that a predictor declares, and the rules for a request.

`.cog/openapi_schema.json` is made from the signature of `run` (`make docs`), so that they are defined once
and Cog need not be imported. It uses JSON Schema's types, bounds, `nullable` and `required`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Self

import orjson

from shared.errors import InputInvalid, PredictionIdInvalid
from shared.validation import visible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runner.prediction.ask import Ask
    from shared.errors import CogTritonError

SCHEMA_FILE = ".cog/openapi_schema.json"
WEBHOOK_EVENTS = ("start", "output", "logs", "completed")
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_LEAST_LIKENESS = 0.6
_MAX_FAULTS = 20
_MAX_SHOWN = 100  # characters
_HIDDEN = "**********"


@dataclass(frozen=True, slots=True)
class Asked:
    """The body of a request for a prediction."""

    id: str | None
    inputs: dict[str, Any]
    webhook: str | None
    webhook_events: frozenset[str]
    output_address: str | None
    """Where an output file is sent."""
    ask: Ask | CogTritonError | None = None
    """The text that the inputs ask for, or why there is none; None: they ask for something else."""


class Refused(Exception):
    """The faults of a body, at most some twenty: where each is, and the error."""

    def __init__(self, faults: list[tuple[tuple[str, ...], InputInvalid | PredictionIdInvalid]]) -> None:
        super().__init__(str(faults[0][1]))
        self.faults = faults

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with its faults."""
        return Refused, (self.faults,)

    def detail(self) -> list[dict[str, Any]]:
        """As Cog reports them."""
        return [
            {
                "loc": ["body", *place],
                "msg": str(error.details.get("reason", error)),
                "type": "value_error",
            }
            for place, error in self.faults
        ]

    @property
    def error(self) -> InputInvalid | PredictionIdInvalid:
        """The first."""
        return self.faults[0][1]


class Schema:
    """What one predictor accepts."""

    def __init__(self, document: dict[str, Any], *, ignore_unknown: bool = False) -> None:
        """`ignore_unknown`: unknown inputs are dropped, as Cog does, instead of refused."""
        inputs = document["components"]["schemas"]["Input"]
        self.document = orjson.dumps(document)
        """For /openapi.json."""
        self._properties: dict[str, dict[str, Any]] = inputs["properties"]
        self._required: list[str] = inputs.get("required", [])
        self._ignore_unknown = ignore_unknown

    @classmethod
    def load(cls, package: Path, *, ignore_unknown: bool = False) -> Self:
        """The schema of the predictor in `package`."""
        return cls(orjson.loads((package / SCHEMA_FILE).read_bytes()), ignore_unknown=ignore_unknown)

    def read(self, body: Any, path_id: str | None = None) -> Asked:
        """What a body asks for; `path_id` is the id in the path. Raises `Refused`."""
        faults = _Faults()
        if not isinstance(body, dict):
            faults.add((), f'{_shown(body)} is not of type "object"')
            raise Refused(faults.found)
        inputs = body.get("input")
        if inputs is None:
            inputs = {}
            if not self._ignore_unknown:
                for name in sorted(body.keys() & self._properties):
                    faults.add((name,), f'inputs are sent in `input`: {{"input": {{"{name}": ...}}}}')
        if isinstance(inputs, dict):
            inputs = self._checked(inputs, faults)
        else:
            faults.add(("input", "__root__"), f'{_shown(inputs)} is not of type "object"')
        prediction_id = body.get("id")
        for one in (prediction_id, path_id):
            if one is not None and not (isinstance(one, str) and _ID.fullmatch(one)):
                faults.found.append((("id",), PredictionIdInvalid()))
        if path_id is not None and prediction_id not in (None, path_id):
            faults.add(("id",), "prediction ID must match the ID supplied in the URL")
        events = body.get("webhook_events_filter")
        events = list(WEBHOOK_EVENTS) if events is None else events
        if not isinstance(events, list) or not all(event in WEBHOOK_EVENTS for event in events):
            faults.add(("webhook_events_filter",), f"it must be a list of {', '.join(WEBHOOK_EVENTS)}")
        for key in ("webhook", "output_file_prefix"):
            if not isinstance(body.get(key), str | None):
                faults.add((key,), f'{_shown(body[key])} is not of type "string"')
        if faults.found:
            raise Refused(sorted(faults.found, key=lambda fault: fault[0]))
        return Asked(
            path_id or prediction_id,
            inputs,
            body.get("webhook") or None,
            frozenset(events),
            body.get("output_file_prefix") or None,
        )

    def without_secrets(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs as they may be shown."""
        return {
            name: _HIDDEN if self._properties.get(name, {}).get("x-cog-secret") else value
            for name, value in inputs.items()
        }

    def _checked(self, inputs: dict[str, Any], faults: _Faults) -> dict[str, Any]:
        """The inputs that exist; None counts as not sent."""
        checked = {}
        for name, value in inputs.items():
            if len(faults.found) >= _MAX_FAULTS:
                break
            declared = self._properties.get(name)
            if declared is not None:
                if value is None and declared.get("nullable"):
                    continue
                for reason in _wrong(declared, value):
                    faults.add(("input", name), reason)
                checked[name] = value
            elif not self._ignore_unknown:
                shown = _cut(name)
                faults.add(("input", shown), self._unknown(shown))
        for name in self._required:
            if name not in inputs:
                faults.add(("input", name), f'"{name}" is a required property')
        return checked

    def _unknown(self, name: str) -> str:
        nearest = get_close_matches(name.lower(), self._properties, 1, _LEAST_LIKENESS)
        hint = f'did you mean "{nearest[0]}"?' if nearest else f"there are {', '.join(self._properties)}"
        return f"there is no such input ({hint})"


class _Faults:
    def __init__(self) -> None:
        self.found: list[tuple[tuple[str, ...], InputInvalid | PredictionIdInvalid]] = []

    def add(self, place: tuple[str, ...], reason: str) -> None:
        where = ".".join(map(visible, place)) or "the body"
        self.found.append((place, InputInvalid(where=where, reason=reason)))


def _wrong(declared: dict[str, Any], value: Any) -> Iterator[str]:
    """Everything that is wrong with a value, in the words of Cog's validator."""
    kind = declared["type"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        minimum, maximum = declared.get("minimum"), declared.get("maximum")
        if minimum is not None and value < minimum:
            yield f"{_shown(value)} is less than the minimum of {minimum}"
        if maximum is not None and value > maximum:
            yield f"{_shown(value)} is greater than the maximum of {maximum}"
    right = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        right = True
    if not right:
        yield f'{_shown(value)} is not of type "{kind}"'


def _shown(value: Any) -> str:
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # it writes fewer levels than it reads
        return "what was sent"
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
