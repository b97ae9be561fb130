"""Requests that use every way of sampling once, before the engine counts as ready."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from runner.protocol.engine import Request, SamplingParameters, StructuredOutput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runner.protocol.engine import Limits

_WAYS: tuple[tuple[SamplingParameters, dict[str, object]], ...] = (
    (SamplingParameters(), {}),
    (SamplingParameters(top_p=1.0), {}),
    (SamplingParameters(top_p=0.9, temperature=0.7), {}),
    (SamplingParameters(top_k=5), {}),
    (SamplingParameters(top_k=5, top_p=0.9, seed=1), {}),
    (SamplingParameters(top_p=1.0, min_p=0.1), {}),
    (SamplingParameters(repetition_penalty=1.1, presence_penalty=0.1, frequency_penalty=0.1), {}),
    (SamplingParameters(min_tokens=2), {"end_ids": frozenset({0})}),
    (SamplingParameters(), {"bad_words": ((0,), (0, 0))}),
    (SamplingParameters(), {"logit_bias": {0: -1.0}}),
    (SamplingParameters(top_p=0.9), {"log_probs": 1}),
)
_TOKENS = 3
STRUCTURED = -1 - len(_WAYS)
"""The id of the request with a grammar, which not every model's tokenizer allows."""


def warm_up_requests(limits: Limits) -> Iterator[Request]:
    """One request for each way, with ids that no other request has."""
    tokens = min(_TOKENS, limits.sequence - 1)
    for number, (sampling, parts) in enumerate(_WAYS):
        request = Request(-1 - number, [0], tokens, **parts)  # type: ignore[arg-type] # each has its own types
        least = min(sampling.min_tokens or 0, tokens) or None
        yield replace(request, sampling=replace(sampling, min_tokens=least))


def structured_warm_up(limits: Limits) -> Request:
    """The request with a grammar."""
    tokens = min(_TOKENS, limits.sequence - 1)
    return Request(STRUCTURED, [0], tokens, structured_output=StructuredOutput("json_schema", "{}"))
