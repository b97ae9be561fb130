"""From the inputs of a prediction to a request for the engine: old names, ranges, defaults, the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.engines.base import Request, SamplingParameters
from runner.text.stop import parse_stop_sequences
from runner.text.template import fill_template
from shared.errors import InvalidArgument, InvalidArgumentMaxTokens, InvalidArgumentMinTokens

if TYPE_CHECKING:
    from runner.settings import Settings
    from runner.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 512
DEFAULT_TEMPLATE = "{prompt}"
_NEUTRAL_LENGTH_PENALTY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a prediction sends; None is "not sent"."""

    prompt: str
    system_prompt: str | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    min_tokens: int | None = None
    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    stop_sequences: str | None = None
    length_penalty: float = _NEUTRAL_LENGTH_PENALTY
    presence_penalty: float = 0.0
    seed: int | None = None
    prompt_template: str | None = None
    log_performance_metrics: bool = False
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """What stands in for inputs that were not sent: the environment's, else those of engine.tar."""

    system_prompt: str
    prompt_template: str
    stop_sequences: str | None
    end_ids: frozenset[int]

    @classmethod
    def of(cls, settings: Settings, instantiate: dict[str, object], tokenizer: Tokenizer) -> Defaults:
        """Settle each default; `instantiate` is that section of the engine's config."""

        def settled(own: str | None, key: str) -> str | None:
            if own is not None:
                return own
            value = instantiate.get(key)
            return None if value is None else str(value)

        end_ids = tokenizer.end_ids
        if settings.end_id is not None:
            end_ids = frozenset({settings.end_id} if settings.end_id >= 0 else ())
        return cls(
            system_prompt=settled(settings.system_prompt, "system_prompt") or "",
            prompt_template=settled(settings.prompt_template, "prompt_template") or DEFAULT_TEMPLATE,
            stop_sequences=settled(settings.stop_sequences, "stop_sequences"),
            end_ids=end_ids,
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and the sequences at which its text is cut."""

    request: Request
    stop_sequences: tuple[str, ...]


def prepare(inputs: Inputs, defaults: Defaults, tokenizer: Tokenizer, request_id: int) -> Prepared:
    """Check and translate the inputs.

    Raises E1001, E1003 and E1004 for the prompt and its template, E1101, E1102 and E1104 for the others.
    """
    text = fill_template(
        defaults.prompt_template if inputs.prompt_template is None else inputs.prompt_template,
        inputs.prompt,
        defaults.system_prompt if inputs.system_prompt is None else inputs.system_prompt,
        system_prompt_sent=inputs.system_prompt is not None,
    )
    stops = defaults.stop_sequences if inputs.stop_sequences is None else inputs.stop_sequences
    request = Request(
        request_id=request_id,
        input_token_ids=tokenizer.encode(text),
        max_tokens=_max_tokens(inputs),
        end_ids=defaults.end_ids,
        sampling=_sampling(inputs),
    )
    return Prepared(request, parse_stop_sequences(stops))


def _max_tokens(inputs: Inputs) -> int:
    if inputs.max_new_tokens is None:
        return inputs.max_tokens
    # A max_tokens that is the default was most likely filled in by Cog, not sent.
    if inputs.max_tokens not in (DEFAULT_MAX_TOKENS, inputs.max_new_tokens):
        raise InvalidArgumentMaxTokens
    return inputs.max_new_tokens


def _min_tokens(inputs: Inputs, max_tokens: int) -> int | None:
    if inputs.min_tokens is not None and inputs.min_new_tokens is not None:
        raise InvalidArgumentMinTokens
    min_tokens = inputs.min_tokens if inputs.min_new_tokens is None else inputs.min_new_tokens
    if min_tokens is None or min_tokens <= 0:  # -1 has always meant "no minimum"
        return None
    if min_tokens > max_tokens:
        raise InvalidArgument(
            argument="min_tokens", value=min_tokens, reason=f"max_tokens is only {max_tokens}"
        )
    return min_tokens


def _sampling(inputs: Inputs) -> SamplingParameters:
    min_tokens = _min_tokens(inputs, _max_tokens(inputs))
    # Executors refuse a temperature or a top_p of 0; people mean "always the likeliest token".
    greedy = inputs.temperature == 0 or inputs.top_p == 0 or inputs.top_k == 1
    return SamplingParameters(
        top_k=1 if greedy else max(inputs.top_k, 0),
        top_p=None if greedy else inputs.top_p,
        temperature=None if greedy else inputs.temperature,
        min_tokens=min_tokens,
        seed=inputs.seed,
        length_penalty=None if inputs.length_penalty == _NEUTRAL_LENGTH_PENALTY else inputs.length_penalty,
        presence_penalty=inputs.presence_penalty or None,
    )
