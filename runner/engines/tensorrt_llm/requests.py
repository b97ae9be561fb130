"""From a request to `executor.Request`; what TensorRT-LLM would not survive is refused first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from runner.protocol.engine import Request, SamplingParameters

_MAX_TOP_K = 1024  # of the sampling kernel


def check(request: Request) -> None:
    """Raise InvalidArgument for what only this engine refuses."""
    top_k = request.sampling.top_k or 0
    if top_k > _MAX_TOP_K:
        raise InvalidArgument(argument="top_k", value=top_k, reason=f"at most {_MAX_TOP_K} is possible")


def minimum_of(request: Request) -> int:
    """The fewest tokens before the sequence may end; 0 when no minimum is asked for."""
    return max(request.sampling.min_tokens or 0, 0)


def executor_request(executor: ModuleType, request: Request, end_ids: Sequence[int]) -> Any:
    """The `executor.Request` for a request that passed the checks; `end_ids` as `in_order` gives them.

    Raises RuntimeError when the executor refuses a value.
    """
    end_id, *other_ends = end_ids or (None,)
    stop_words = [list(word) for word in request.stop_words if word]
    ended_by_us = bool(other_ends) and minimum_of(request) > 0
    if not ended_by_us:
        stop_words += [[token] for token in other_ends]
    bad_words = [list(word) for word in request.bad_words if word]
    return executor.Request(
        list(request.input_token_ids),
        request.max_tokens,
        streaming=request.streaming or ended_by_us,  # otherwise nothing is seen of it until it is too long
        sampling_config=executor.SamplingConfig(**sampling_options(request.sampling)),
        output_config=executor.OutputConfig(exclude_input_from_output=True),
        end_id=end_id,
        stop_words=stop_words or None,
        bad_words=bad_words or None,
    )


def sampling_options(sampling: SamplingParameters) -> dict[str, float]:
    """The arguments of `executor.SamplingConfig`: only what is set, and only what it accepts.

    With neither top_k nor top_p (unset, 0, -1) it takes the likeliest token. A temperature of 0 means the
    same; versions of the executor differ in whether they accept that number.
    """
    options: dict[str, float | None] = {
        "top_k": max(sampling.top_k or 0, 0) or None,
        "top_p": max(sampling.top_p or 0.0, 0.0) or None,
        "temperature": sampling.temperature,
        "min_tokens": max(sampling.min_tokens or 0, 0) or None,
        "seed": sampling.seed,
        "repetition_penalty": sampling.repetition_penalty,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "min_p": sampling.min_p or None,
    }
    if sampling.temperature == 0:
        options |= {"top_k": 1, "top_p": None, "temperature": None}
    return {name: value for name, value in options.items() if value is not None}
