"""Which sampling parameters ask an engine for something, and the refusal of those it cannot follow."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from shared.errors import ParameterNotHonoured

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .base import SamplingParameters

# The values of each parameter that leave the engine's choice as it is.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "top_k": (0, -1),
    "top_p": (0.0, 1.0),
    "temperature": (1.0,),
    "min_tokens": (0, -1),
    "seed": (),
    "length_penalty": (0.0, 1.0),  # TensorRT-LLM's default, and everybody else's
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
}


# The engines that choose by the seed of a request, for those who cannot ask the engine's own class.
SEEDED = frozenset({"mock", "tensorrt_llm"})


def check_honoured(
    kind: str,
    honours: frozenset[str],
    sampling: SamplingParameters,
    bad_words: Sequence[Sequence[int]] = (),
) -> None:
    """Raise E1103 for a parameter that asks for something which the engine does not follow."""
    if bad_words and "bad_words" not in honours:
        raise ParameterNotHonoured(engine=kind, parameter="bad_words", value=bad_words)
    for field in fields(sampling):
        value = getattr(sampling, field.name)
        if value is None or field.name in honours or value in _NEUTRAL[field.name]:
            continue
        raise ParameterNotHonoured(engine=kind, parameter=field.name, value=value)
