"""The inputs of a prediction of Cog's API, and what they ask for: old names, defaults."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args, get_type_hints

from runner.prediction.ask import Ask
from runner.prediction.structured_output import structured_output_of_text
from runner.protocol.engine import SamplingParameters
from runner.text.messages import Conversation, parse_messages
from runner.text.stop import MAX_STOP_CHARACTERS, parse_stop_sequences
from shared.errors import (
    InvalidArgumentMaxTokens,
    InvalidArgumentMinTokens,
    MessagesInvalid,
    SettingInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runner.settings import Settings
    from runner.text.tokenizer import Tokenizer

DEFAULT_MAX_TOKENS = 512
DEFAULT_TEMPLATE = "{prompt}"
_NEUTRAL_LENGTH_PENALTY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a prediction sends; None is "not sent"."""

    prompt: str | None = None
    messages: str | None = None
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
    structured_output: str | None = None
    lora: str | None = None
    prompt_template: str | None = None
    log_performance_metrics: bool = False
    max_new_tokens: int | None = None
    min_new_tokens: int | None = None

    def __post_init__(self) -> None:
        """In JSON Schema, 3.0 is an integer too."""
        for name in _INTEGERS:
            if isinstance(value := getattr(self, name), float):
                object.__setattr__(self, name, int(value))

    def ask(self) -> Ask:
        """What they ask for. Raises MessagesInvalid, InvalidArgumentMinTokens, InvalidArgumentMaxTokens and
        StructuredOutputInvalid.
        """
        if self.messages is not None and (self.prompt or self.prompt_template is not None):
            raise MessagesInvalid(reason="a prompt or a prompt_template was sent as well")
        return Ask(
            prompt=self.prompt,
            conversation=None if self.messages is None else Conversation.of(parse_messages(self.messages)),
            system_prompt=self.system_prompt,
            prompt_template=self.prompt_template,
            max_tokens=self._max_tokens(),
            sampling=SamplingParameters(
                top_k=self.top_k,
                top_p=self.top_p,
                temperature=self.temperature,
                min_tokens=self._min_tokens(),
                seed=self.seed,
                length_penalty=self.length_penalty,
                presence_penalty=self.presence_penalty,
            ),
            stop_sequences=(
                None if self.stop_sequences is None else parse_stop_sequences(self.stop_sequences)
            ),
            structured_output=(
                None if self.structured_output is None else structured_output_of_text(self.structured_output)
            ),
            lora=self.lora,
            log_performance=self.log_performance_metrics,
        )

    def _max_tokens(self) -> int:
        if self.max_new_tokens is None:
            return self.max_tokens
        # A max_tokens equal to the default was most likely filled in by Cog, not sent.
        if self.max_tokens not in (DEFAULT_MAX_TOKENS, self.max_new_tokens):
            raise InvalidArgumentMaxTokens
        return self.max_new_tokens

    def _min_tokens(self) -> int | None:
        if self.min_tokens is not None and self.min_new_tokens is not None:
            raise InvalidArgumentMinTokens
        return self.min_tokens if self.min_new_tokens is None else self.min_new_tokens


_INTEGERS = tuple(name for name, kind in get_type_hints(Inputs).items() if int in (kind, *get_args(kind)))


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values of inputs that were not sent: from the environment, else from `instantiate`."""

    system_prompt: str
    prompt_template: str
    stop_sequences: tuple[str, ...]
    end_ids: frozenset[int]
    random_seed: bool = False
    """Whether a seed is chosen if none was sent, so that it can be reported."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        instantiate: Mapping[str, object],
        tokenizer: Tokenizer,
        *,
        random_seed: bool = False,
    ) -> Defaults:
        """Decide each default; `instantiate` is `Settings.instantiate`.

        Raises SettingInvalid for an END_ID that the tokenizer does not have, and for too long STOP_SEQUENCES.
        """

        def settled(own: str | None, key: str) -> str | None:
            if own is not None:
                return own
            value = instantiate.get(key)
            return json.dumps(value) if isinstance(value, list) else None if value is None else str(value)

        end_ids = tokenizer.end_ids
        if settings.end_id is not None:
            if settings.end_id >= tokenizer.vocab_size:
                reason = f"the tokenizer only has ids below {tokenizer.vocab_size}"
                raise SettingInvalid(setting="END_ID", value=settings.end_id, reason=reason)
            end_ids = frozenset({settings.end_id} if settings.end_id >= 0 else ())
        stops = parse_stop_sequences(settled(settings.stop_sequences, "stop_sequences"))
        if (length := sum(map(len, stops))) > MAX_STOP_CHARACTERS:
            reason = f"it has {length} characters, and at most {MAX_STOP_CHARACTERS} are accepted"
            raise SettingInvalid(setting="STOP_SEQUENCES", value=f"{stops[0][:20]}...", reason=reason)
        return cls(
            system_prompt=settled(settings.system_prompt, "system_prompt") or "",
            prompt_template=settled(settings.prompt_template, "prompt_template") or DEFAULT_TEMPLATE,
            stop_sequences=stops,
            end_ids=end_ids,
            random_seed=random_seed,
        )
