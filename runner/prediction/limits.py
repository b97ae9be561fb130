"""How long a prompt and its answer may be: the engine's own limits, known before anything is sent."""

from __future__ import annotations

from dataclasses import replace

from runner.protocol.engine import MAX_TOKENS, Limits
from shared.errors import InvalidArgument, PromptRequired, PromptTooLong

UNLIMITED = Limits(MAX_TOKENS, MAX_TOKENS - 1)


def lowered(limits: Limits, sequence: int | None) -> Limits:
    """These limits, with at most that many tokens of prompt and answer together."""
    if sequence is None or sequence >= limits.sequence:
        return limits
    return replace(limits, sequence=sequence, prompt=min(limits.prompt, sequence - 1))


def room(limits: Limits, prompt_tokens: int, max_tokens: int | None) -> int:
    """`max_tokens`, or as many as the prompt leaves room for.

    Raises PromptRequired for a prompt without tokens, PromptTooLong for one that is too long, InvalidArgument
    for more than any engine can count.
    """
    if prompt_tokens == 0:
        raise PromptRequired
    if prompt_tokens > limits.prompt:
        raise PromptTooLong(prompt_tokens=prompt_tokens, max_prompt_tokens=limits.prompt)
    left = limits.sequence - prompt_tokens
    if max_tokens is None:
        return left
    if max_tokens > MAX_TOKENS:
        raise InvalidArgument(argument="max_tokens", value=max_tokens, reason=f"the most is {MAX_TOKENS}")
    return min(max_tokens, left)
