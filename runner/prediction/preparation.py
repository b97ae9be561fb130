"""From the inputs of a prediction to a request that the engine will take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from runner.engines.catalogue import ENGINES
from runner.prediction.inputs import Defaults, max_tokens_asked, sampling_of
from runner.prediction.limits import Limits
from runner.protocol.engine import Request
from runner.text.stop import parse_stop_sequences
from runner.text.template import fill_template
from runner.text.tokenizer import Tokenizer
from shared.errors import ChatTemplateMissing, InvalidArgument, MessagesInvalid, PromptRequired

if TYPE_CHECKING:
    from pathlib import Path

    from runner.prediction.inputs import Inputs
    from runner.settings import Settings
    from runner.text.chat import ChatTemplate
    from shared.artifact import EngineDirectory

_MOST_STOP_CHARACTERS = 1 << 14  # each is a node of the automaton that looks for them


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request, and the sequences at which its text is cut."""

    request: Request
    stop_sequences: tuple[str, ...]
    prompt: str = field(repr=False)
    """The formatted prompt: for the log, when that is asked for."""
    log_performance: bool


@dataclass(frozen=True, slots=True)
class Preparation:
    """From inputs to requests, for one engine."""

    tokenizer: Tokenizer
    defaults: Defaults
    limits: Limits = field(default_factory=Limits)
    chat_template: ChatTemplate | None = None

    @classmethod
    def of(cls, settings: Settings, kind: str, engine: EngineDirectory) -> Self:
        """Raises E2102, E4002 and E4100."""
        instantiate = settings.instantiate(engine.config)
        tokenizer = Tokenizer.load(engine.tokenizer_files)
        return cls(
            tokenizer,
            Defaults.of(settings, instantiate, tokenizer, random_seed=ENGINES[kind].seeds),
            Limits.of(kind, engine, settings.server_arguments(engine.config)).lowered(
                settings.max_sequence_length
            ),
            _chat_template(engine.tokenizer_files),
        )

    def prepare(self, inputs: Inputs, request_id: int) -> Prepared:
        """Check and translate the inputs.

        Raises E1001 to E1006 for the prompt, its template and the messages, E1101, E1102 and E1104 for the
        others.
        """
        text = self._prompt(inputs) if inputs.messages is None else self._chat_prompt(inputs, inputs.messages)
        stops = self.defaults.stop_sequences if inputs.stop_sequences is None else inputs.stop_sequences
        if len(stops or "") > _MOST_STOP_CHARACTERS:
            reason = f"at most {_MOST_STOP_CHARACTERS} characters are taken"
            raise InvalidArgument(argument="stop_sequences", value="too long", reason=reason)
        asked = max_tokens_asked(inputs)
        tokens = self.tokenizer.encode(text, add_special_tokens=inputs.messages is None)
        max_tokens = self.limits.room(len(tokens), asked)
        request = Request(
            request_id=request_id,
            input_token_ids=tokens,
            max_tokens=max_tokens,
            end_ids=self.defaults.end_ids,
            sampling=sampling_of(inputs, max_tokens, random_seed=self.defaults.random_seed),
        )
        return Prepared(request, parse_stop_sequences(stops), text, inputs.log_performance_metrics)

    def _prompt(self, inputs: Inputs) -> str:
        if inputs.prompt is None:
            raise PromptRequired
        return fill_template(
            self.defaults.prompt_template if inputs.prompt_template is None else inputs.prompt_template,
            inputs.prompt,
            self.defaults.system_prompt if inputs.system_prompt is None else inputs.system_prompt,
            system_prompt_sent=inputs.system_prompt is not None,
        )

    def _chat_prompt(self, inputs: Inputs, text: str) -> str:
        from runner.text.chat import parse_messages

        if inputs.prompt or inputs.prompt_template is not None:
            raise MessagesInvalid(reason="a prompt or a prompt_template was sent beside them")
        if self.chat_template is None:
            raise ChatTemplateMissing
        messages = parse_messages(text)
        if messages[0]["role"] != "system":
            system = self.defaults.system_prompt if inputs.system_prompt is None else inputs.system_prompt
            if system:
                messages.insert(0, {"role": "system", "content": system})
        elif inputs.system_prompt:
            raise MessagesInvalid(reason="the first is a system prompt, and a system_prompt was sent too")
        return self.chat_template.render(messages)


def _chat_template(directory: Path) -> ChatTemplate | None:
    from runner.text.chat import ChatTemplate

    return ChatTemplate.load(directory)
