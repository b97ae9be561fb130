"""From the bytes of a body to a prediction of Cog's API, made where the body is parsed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import orjson

from runner.front.cog.schema import Refused
from runner.prediction.inputs import Inputs
from shared.errors import BodyNotRead, CogTritonError
from shared.unreadable import why_no_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.front.cog.schema import Asked, Schema
    from runner.prediction.ask import Ask


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads one body; can be pickled."""

    schema: Schema
    path_id: str | None
    """The id in the path."""
    for_texts: bool
    """Whether its inputs ask for a text."""

    def __call__(self, body: bytes) -> Asked | Refused:
        """What it asks for, or its faults. Raises BodyNotRead."""
        try:
            asked = self.schema.read(orjson.loads(body), self.path_id)
        except orjson.JSONDecodeError as problem:
            raise BodyNotRead(reason=f"it {why_no_json(problem)}") from None
        except Refused as refused:
            return refused
        return replace(asked, ask=_ask(asked.inputs)) if self.for_texts else asked


def _ask(inputs: Mapping[str, Any]) -> Ask | CogTritonError:
    """An error is one of the prediction, and not of the request."""
    try:
        return Inputs(**inputs).ask()
    except CogTritonError as error:
        return error
