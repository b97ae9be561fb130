"""What a body of OpenAI's API wants: made where the body is parsed, and quick to hand on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from runner.front.openai.asks import as_sent, chat_asks, completion_asks, template_arguments
from runner.front.openai.parameters import (
    ChatParameters,
    CompletionParameters,
    DetokenizeParameters,
    StreamOptions,
    TokenizeParameters,
)
from runner.front.openai.reading import read
from runner.prediction.ask import Ask
from runner.text.messages import Conversation
from shared.errors import CogTritonError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from runner.front.openai.errors import Sent
    from runner.front.openai.parameters import Parameters

    _Parameters = TypeVar("_Parameters", bound=Parameters)


@dataclass(frozen=True, slots=True)
class Texts:
    """One or more texts."""

    model: str | None
    asks: Sequence[Ask]
    per_prompt: int
    stream: bool
    usage: bool
    """Whether a stream reports its usage at the end."""
    usage_in_each: bool
    """Whether each of its events does."""
    sent: Mapping[str, Sent]
    """What errors call its parameters."""
    problem: Callable[[], CogTritonError] | None = None
    """Why there are no asks."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a text."""

    model: str | None
    ask: Ask
    plain: bool
    """Without the special tokens of a prompt, or with those of the chat template."""


@dataclass(frozen=True, slots=True)
class Words:
    """The text of these tokens."""

    model: str | None
    tokens: array[int]


def completion_texts(body: bytes) -> Texts:
    """Raises RequestInvalid, ParameterUnknown and ParameterNotSupported."""
    return _texts(read(CompletionParameters, body), completion_asks)


def chat_texts(body: bytes) -> Texts:
    """Raises RequestInvalid, ParameterUnknown and ParameterNotSupported."""
    return _texts(read(ChatParameters, body), chat_asks)


def tokens(body: bytes) -> Tokens:
    """Raises RequestInvalid, ParameterUnknown and ParameterNotSupported."""
    parameters = read(TokenizeParameters, body)
    if parameters.messages is None:
        ask = Ask(prompt=parameters.prompt, prompt_template="{prompt}")
        return Tokens(parameters.model, ask, not parameters.add_special_tokens)
    conversation = Conversation.of([message.for_template() for message in parameters.messages])
    arguments = {"add_generation_prompt": parameters.add_generation_prompt}
    ask = Ask(
        conversation=conversation,
        template_arguments=template_arguments(arguments | (parameters.chat_template_kwargs or {})),
    )
    return Tokens(parameters.model, ask, plain=True)


def words(body: bytes) -> Words:
    """Raises RequestInvalid, ParameterUnknown and ParameterNotSupported."""
    parameters = read(DetokenizeParameters, body)
    return Words(parameters.model, parameters.tokens)


def _texts(parameters: _Parameters, asks: Callable[[_Parameters], Sequence[Ask]]) -> Texts:
    options = parameters.stream_options or StreamOptions()
    wanted = Texts(
        model=parameters.model,
        asks=(),
        per_prompt=parameters.n or 1,
        stream=bool(parameters.stream),
        usage=bool(options.include_usage),
        usage_in_each=bool(options.include_usage and options.continuous_usage_stats),
        sent=as_sent(parameters),
    )
    try:
        return replace(wanted, asks=asks(parameters))
    except CogTritonError as error:
        return replace(wanted, problem=partial(type(error), **error.details))
