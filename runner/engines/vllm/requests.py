"""From a request to an `EngineCoreRequest`; what the engine core would not survive is refused first.

vLLM makes these checks in its own front end. Below it, each of these faults ends the engine for everybody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest

from runner.engines.checks import shown
from shared.errors import InvalidArgument

from .grammars import BACKEND

if TYPE_CHECKING:
    from runner.protocol.engine import Limits, Request, SamplingParameters

    from .grammars import Told

# Of the sampler on GPUs (v1/worker/gpu/sample): beyond them the worker raises.
_MAX_BAD_WORDS = 128
_MAX_BAD_WORD_TOKENS = 1024
_MAX_ENDS_WITH_MINIMUM = 128
_MAX_BIASES = 1024
_HIGHEST_TEMPERATURE = 2.0
_LARGEST_PENALTY = 2.0
# Within these, 32-bit logits stay finite, even when vLLM divides them by its lowest temperature, 0.01.
_LARGEST_BIAS = 1e10  # the largest power of ten that has 32 bits
_REPETITION_PENALTIES = (1e-3, 1e3)
_SEEDS = 2**63  # the worker keeps them as int64


def is_greedy(sampling: SamplingParameters) -> bool:
    """Whether the likeliest token is chosen: on request, or because neither top_k nor top_p is set."""
    unset = (sampling.top_k or 0) <= 0 and (sampling.top_p or 0.0) <= 0
    return unset or sampling.temperature == 0 or sampling.top_k == 1


def core_request(request: Request, limits: Limits, most_log_probs: int) -> EngineCoreRequest:
    """The engine core's form of a request that passed the checks of the host.

    `most_log_probs` is vLLM's `max_logprobs`; -1: as many as there are tokens.

    Raises InvalidArgument for values that vLLM does not accept.
    """
    most = (limits.vocabulary or 0) if most_log_probs < 0 else most_log_probs
    if (request.log_probs or 0) > most:
        raise InvalidArgument(
            argument="log_probs", value=request.log_probs, reason=f"at most {most} are returned"
        )
    return EngineCoreRequest(
        request_id=str(request.request_id),
        prompt_token_ids=list(request.input_token_ids),
        mm_features=None,
        sampling_params=_sampling(request, limits),
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        data_parallel_rank=None,
    )


def hold_to(asked: EngineCoreRequest, told: Told) -> None:
    """Have the engine core constrain the output to a grammar that has been tried."""
    parameters = StructuredOutputsParams(**{told.field: told.text})
    parameters._backend = BACKEND  # noqa: SLF001 # vLLM's own front end sets it
    asked.sampling_params.structured_outputs = parameters


def _sampling(request: Request, limits: Limits) -> SamplingParams:
    sampling = request.sampling
    vocabulary = limits.vocabulary or 0
    ends = {token for token in request.end_ids if token < vocabulary}
    ends |= {word[0] for word in request.stop_words if len(word) == 1 and 0 <= word[0] < vocabulary}
    min_tokens = max(sampling.min_tokens or 0, 0)
    _check(request, min_tokens, len(ends))
    greedy = is_greedy(sampling)
    parameters = SamplingParams(
        detokenize=False,
        skip_clone=True,
        max_tokens=request.max_tokens,
        min_tokens=min_tokens,
        temperature=0.0 if greedy else 1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if greedy else sampling.top_p or 1.0,
        top_k=0 if greedy else max(sampling.top_k or 0, 0),
        min_p=sampling.min_p or 0.0,
        seed=None if sampling.seed is None else _signed(sampling.seed),
        repetition_penalty=1.0 if sampling.repetition_penalty is None else sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        stop_token_ids=sorted(ends),
        logprobs=request.log_probs,
        logit_bias=dict(request.logit_bias) or None,
    )
    if bad_words := [list(word) for word in request.bad_words if word]:
        # The public field takes text and a tokenizer; this is what it becomes.
        parameters._bad_words_token_ids = bad_words  # noqa: SLF001
    return parameters


def _signed(seed: int) -> int:
    """Seeds have 64 bits here and there; -1 means "none" to vLLM, and the worker needs a signed number."""
    seed = (seed + _SEEDS) % (2 * _SEEDS) - _SEEDS
    return seed if seed != -1 else _SEEDS - 1


def _check(request: Request, min_tokens: int, ends: int) -> None:
    sampling = request.sampling
    structured = request.structured_output is not None
    least, largest = _REPETITION_PENALTIES
    biases = [bias for bias in request.logit_bias.values() if not abs(bias) <= _LARGEST_BIAS]
    within: list[tuple[str, Any, bool, str]] = [
        (
            "temperature",
            sampling.temperature,
            0 <= (sampling.temperature or 0) <= _HIGHEST_TEMPERATURE,
            f"vLLM accepts 0 to {_HIGHEST_TEMPERATURE:g}",
        ),
        ("top_p", sampling.top_p, 0 <= (sampling.top_p or 0) <= 1, "it must be from 0 to 1"),
        ("min_p", sampling.min_p, 0 <= (sampling.min_p or 0) <= 1, "it must be from 0 to 1"),
        (
            "repetition_penalty",
            sampling.repetition_penalty,
            sampling.repetition_penalty is None or least <= sampling.repetition_penalty <= largest,
            f"it must be from {least:g} to {largest:g}",
        ),
        *(
            (
                name,
                value,
                abs(value or 0) <= _LARGEST_PENALTY,
                f"vLLM accepts -{_LARGEST_PENALTY:g} to {_LARGEST_PENALTY:g}",
            )
            for name, value in (
                ("presence_penalty", sampling.presence_penalty),
                ("frequency_penalty", sampling.frequency_penalty),
            )
        ),
        ("min_tokens", min_tokens, min_tokens <= request.max_tokens, f"max_tokens is {request.max_tokens}"),
        (
            "bad_words",
            f"a list of {len(request.bad_words)}",
            len(request.bad_words) <= _MAX_BAD_WORDS
            and sum(map(len, request.bad_words)) <= _MAX_BAD_WORD_TOKENS,
            f"vLLM accepts at most {_MAX_BAD_WORDS} words of {_MAX_BAD_WORD_TOKENS} tokens in total",
        ),
        (
            "min_tokens",
            min_tokens,
            min_tokens == 0 or ends <= _MAX_ENDS_WITH_MINIMUM,
            f"with a minimum, vLLM accepts at most {_MAX_ENDS_WITH_MINIMUM} end ids and stop words",
        ),
        # Either may forbid the only token that the grammar allows: then nothing is left to choose from.
        (
            "min_tokens",
            min_tokens,
            min_tokens == 0 or not structured,
            "the structure says when the text ends",
        ),
        (
            "bad_words",
            f"a list of {len(request.bad_words)}",
            not request.bad_words or not structured,
            "the structure says what may be written",
        ),
        (
            "logit_bias",
            f"{len(request.logit_bias)} tokens",
            len(request.logit_bias) <= _MAX_BIASES,
            f"vLLM accepts at most {_MAX_BIASES} tokens",
        ),
        (
            "logit_bias",
            ", ".join(f"{bias:g}" for bias in set(biases)),
            not biases,
            f"it must be from -{_LARGEST_BIAS:g} to {_LARGEST_BIAS:g}",
        ),
    ]
    for argument, value, holds, reason in within:
        if not holds:
            raise InvalidArgument(argument=argument, value=shown(value), reason=reason)
