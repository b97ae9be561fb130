"""From what a prediction asks for to a request that the engine will accept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from runner.prediction.limits import UNLIMITED, room
from runner.prediction.sampling import settle
from runner.protocol.engine import Request
from runner.text.stop import MAX_STOP_CHARACTERS
from runner.text.template import fill_template
from shared.errors import InvalidArgument, MessagesInvalid, PromptRequired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.prediction.ask import Ask
    from runner.prediction.inputs import Defaults
    from runner.protocol.engine import Limits
    from runner.text.messages import Conversation
    from runner.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, the sequences at which its text is cut, and the name of its adapter."""

    request: Request
    stop_sequences: Sequence[str]
    adapter: str | None


@dataclass(frozen=True, slots=True)
class Preparation:
    """From asks to requests, for one engine. Each step is one method."""

    tokenizer: Tokenizer
    defaults: Defaults
    limits: Limits = UNLIMITED
    takes_salts: bool = False
    """Whether the engine can keep parts of its prefix cache apart."""
    salts_keys: bool = False
    """Whether it keeps those of API keys apart."""

    def prompt(self, ask: Ask) -> str:
        """The template, filled in. Raises PromptRequired, BadPromptTemplate, PromptTemplateError and
        InvalidArgument.
        """
        if not isinstance(ask.prompt, str):
            raise PromptRequired
        return fill_template(
            self.defaults.prompt_template if ask.prompt_template is None else ask.prompt_template,
            ask.prompt,
            self.defaults.system_prompt if ask.system_prompt is None else ask.system_prompt,
            system_prompt_sent=ask.system_prompt is not None,
        )

    def conversation(self, ask: Ask) -> Conversation:
        """The messages, with the system prompt before them. Raises MessagesInvalid."""
        conversation = ask.conversation
        if conversation is None:
            raise MessagesInvalid(reason="the list is empty")
        if not conversation.begins_with_system:
            system = self.defaults.system_prompt if ask.system_prompt is None else ask.system_prompt
            return conversation.with_system(system) if system else conversation
        if ask.system_prompt:
            raise MessagesInvalid(reason="the first is a system prompt, and a system_prompt was sent too")
        return conversation

    def request(
        self, ask: Ask, tokens: Sequence[int], request_id: int, *, lora: str | None = None, key: str = ""
    ) -> Prepared:
        """The request to the engine. Raises PromptRequired, PromptTooLong and InvalidArgument.

        `lora`: the place of the adapter in the ask; `key`: the identity of the API key's holder.
        """
        stops = self.defaults.stop_sequences if ask.stop_sequences is None else ask.stop_sequences
        if (length := sum(map(len, stops))) > MAX_STOP_CHARACTERS:
            reason = f"at most {MAX_STOP_CHARACTERS} characters are accepted"
            raise InvalidArgument(argument="stop_sequences", value=f"{length} characters long", reason=reason)
        max_tokens = room(self.limits, len(tokens), ask.max_tokens)
        request = Request(
            request_id=request_id,
            input_token_ids=tokens,
            max_tokens=max_tokens,
            end_ids=frozenset() if ask.ignore_end else self.defaults.end_ids,
            logit_bias=ask.logit_bias,
            log_probs=ask.log_probs,
            structured_output=ask.structured_output,
            lora=lora,
            cache_salt=self._salt(key, ask.cache_salt),
            priority=ask.priority,
            sampling=settle(ask.sampling, max_tokens, random_seed=self.defaults.random_seed),
        )
        return Prepared(request, stops, ask.lora)

    def _salt(self, key: str, sent: str | None) -> str | None:
        """One key cannot tell from timing what prompts another has sent."""
        if not self.takes_salts:
            return sent  # which is then refused, as it was sent
        if sent is None and not (key and self.salts_keys):
            return None
        return hashlib.sha256(f"{key}\0{sent or ''}".encode()).hexdigest()
