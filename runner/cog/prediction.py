"""What Cog knows of a prediction."""

from __future__ import annotations

import contextvars
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runner.cog.cancellation import Cancellation, current_cancellation

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.errors import CogTritonError

_ID_VARIABLE = "_coglet_prediction_id"  # by which Cog's server finds whose log line it is


@dataclass(frozen=True, slots=True)
class Prediction:
    """One prediction, while its `run` is being called and after."""

    record_metric: Callable[[str, object], None]
    id: str = ""
    cancellation: Cancellation = field(default_factory=Cancellation)
    received_at: float = field(default_factory=time.monotonic)


def current_prediction(record_metric: Callable[[str, object], None]) -> Prediction:
    """The prediction whose `run` is being called: later, in another thread, Cog no longer knows."""
    context = contextvars.copy_context()
    ids = (value for variable, value in context.items() if variable.name == _ID_VARIABLE)
    return Prediction(record_metric, str(next(ids, "")), current_cancellation())


def as_cog_tells(error: CogTritonError) -> Exception:
    """What to raise so that Cog reports `error` as we do, after words of its own.

    It writes the name of the type before the text.
    """
    name, _, sentences = str(error).partition(": ")
    kind: type[Exception] = type(name, (Exception,), {})
    return kind(sentences)
