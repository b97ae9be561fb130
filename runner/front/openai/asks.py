"""What the parameters of OpenAI's API ask of the engine, one `Ask` for each wanted text."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from runner.front.openai.errors import SENT, STRUCTURE, Sent
from runner.front.openai.parameters import MAX_CHOICES, ChatParameters
from runner.prediction.ask import Ask
from runner.prediction.structured_output import structured_output
from runner.protocol.engine import SamplingParameters
from runner.text.messages import Conversation
from shared.errors import RequestInvalid

if TYPE_CHECKING:
    from typing import Any

    from runner.front.openai.parameters import (
        CompletionParameters,
        Parameters,
        ResponseFormat,
    )
    from runner.protocol.engine import StructuredOutput

_DEFAULT_COMPLETION_TOKENS = 16
_RAW = "{prompt}"
_SEEDS = 2**64
_MAX_BIASES = 1 << 18  # for all texts together: each sends its own to the engine
_STRUCTURES = frozenset(
    {
        "response_format",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
    }
)


def completion_asks(parameters: CompletionParameters) -> list[Ask]:
    """The texts of all prompts, `n` for each, in the order of `choices`. Raises RequestInvalid."""
    common = _common(parameters)
    return [
        ask
        for prompt in parameters.prompt
        for ask in _times(
            parameters,
            replace(
                common,
                prompt=prompt,
                prompt_template=_RAW,
                max_tokens=_DEFAULT_COMPLETION_TOKENS
                if parameters.max_tokens is None
                else parameters.max_tokens,
                log_probs=parameters.logprobs,
            ),
            len(parameters.prompt),
        )
    ]


def chat_asks(parameters: ChatParameters) -> list[Ask]:
    """`n` answers to a conversation. Raises RequestInvalid."""
    ask = replace(
        _common(parameters),
        conversation=Conversation.of([message.for_template() for message in parameters.messages]),
        template_arguments=template_arguments(parameters.chat_template_kwargs),
        max_tokens=parameters.max_completion_tokens or parameters.max_tokens,
        log_probs=(parameters.top_logprobs or 0) if parameters.logprobs else None,
    )
    return _times(parameters, ask, prompts=1)


def template_arguments(arguments: dict[str, Any] | None) -> bytes:
    """Those of a body, as JSON. Raises RequestInvalid."""
    try:
        return json.dumps(arguments or {}).encode()
    except RecursionError:
        reason = "chat_template_kwargs is nested too deeply"
        raise RequestInvalid(parameter="chat_template_kwargs", reason=reason) from None


def _common(parameters: Parameters) -> Ask:
    return Ask(
        sampling=SamplingParameters(
            top_k=parameters.top_k,
            # OpenAI's default; to engines, neither top_k nor top_p means the likeliest token.
            top_p=1.0 if parameters.top_p is None else parameters.top_p,
            temperature=parameters.temperature,
            min_tokens=parameters.min_tokens,
            # OpenAI's seeds have a sign, those of engines do not.
            seed=None if parameters.seed is None else parameters.seed % _SEEDS,
            length_penalty=parameters.length_penalty,
            repetition_penalty=parameters.repetition_penalty,
            presence_penalty=parameters.presence_penalty,
            frequency_penalty=parameters.frequency_penalty,
            min_p=parameters.min_p,
        ),
        # An empty list is "not sent"; of one of empty texts nothing is left to stop at.
        stop_sequences=tuple(filter(None, parameters.stop)) if parameters.stop else None,
        ignore_end=bool(parameters.ignore_eos),
        logit_bias=parameters.logit_bias,
        structured_output=_structure(parameters),
        cache_salt=parameters.cache_salt,
        priority=parameters.priority,
    )


def _structure(parameters: Parameters) -> StructuredOutput | None:
    """What constrains the text, however it was expressed. Raises StructuredOutputInvalid, and RequestInvalid
    if it is given twice.
    """
    if not parameters.model_fields_set & _STRUCTURES:
        return None
    asked = {
        "response_format": _formatted(parameters.response_format),
        "structured_outputs": parameters.structured_outputs or {},
        "guided_json": {"json": parameters.guided_json},
        "guided_regex": {"regex": parameters.guided_regex},
        "guided_choice": {"choice": parameters.guided_choice},
        "guided_grammar": {"grammar": parameters.guided_grammar},
    }
    found = {name: made for name, one in asked.items() if (made := structured_output(one)) is not None}
    if len(found) > 1:
        first, second, *_ = found
        raise RequestInvalid(parameter=second, reason=f"{first} and {second} were both sent")
    return next(iter(found.values()), None)


def as_sent(parameters: Parameters) -> dict[str, Sent]:
    """What errors have to call the parameters of this request, as SENT."""
    sent = dict(SENT)
    own = SENT[STRUCTURE].name
    structures = [name for name in sorted(_STRUCTURES) if getattr(parameters, name) is not None]
    structures.sort(key=lambda name: (not getattr(parameters, name), name == own))
    sent[STRUCTURE] = Sent(next(iter(structures), own))
    if isinstance(parameters, ChatParameters):
        if parameters.top_logprobs is None:
            sent["log_probs"] = Sent("logprobs", "true")
        else:
            sent["log_probs"] = Sent("top_logprobs")
        if parameters.max_completion_tokens is not None:
            sent["max_tokens"] = Sent("max_completion_tokens")
    return sent


def _formatted(wanted: ResponseFormat | None) -> dict[str, Any]:
    if wanted is None or wanted.type == "text":
        return {}
    if wanted.type == "json_object":
        return {"json_object": True}
    schema = wanted.json_schema
    if schema is None or (schema.schema_ is None and schema.name is None):
        reason = "response_format.json_schema.schema is missing"
        raise RequestInvalid(parameter="response_format", reason=reason)
    if schema.schema_ is None:
        return {"json_object": True}
    return {"json": schema.schema_}


def _times(parameters: Parameters, ask: Ask, prompts: int) -> list[Ask]:
    """The ask, as many times as wanted; if a seed was sent, each has its own, or all would be the same."""
    count = parameters.n or 1
    if count * prompts > MAX_CHOICES:
        reason = f"{prompts} prompts with n={count} are more than {MAX_CHOICES} texts"
        raise RequestInvalid(parameter="n", reason=reason)
    if count * prompts * len(ask.logit_bias) > _MAX_BIASES:
        reason = (
            f"{len(ask.logit_bias)} token ids for each of {count * prompts} texts are more than {_MAX_BIASES}"
        )
        raise RequestInvalid(parameter="logit_bias", reason=reason)
    seed = ask.sampling.seed
    if seed is None:
        return [ask] * count
    return [
        replace(ask, sampling=replace(ask.sampling, seed=(seed + index) % _SEEDS)) for index in range(count)
    ]
