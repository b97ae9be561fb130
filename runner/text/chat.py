"""The chat template that a model is published with: from messages to the text of a prompt.

Jinja2, sandboxed, with what templates expect: the settings and additions of `apply_chat_template` in
Hugging Face's transformers (utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Self

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import MessagesInvalid, TritonTokenizerError
from shared.unreadable import reason_of, why_no_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

TEMPLATE_FILE = "chat_template.jinja"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_MAX_OUTPUT = 1 << 22  # characters


class ChatTemplate:
    """One model's template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises TritonTokenizerError for a template that is not valid."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as invalid:
            reason = f"its chat template is not valid: {invalid}".removesuffix(".")
            raise TritonTokenizerError(reason=reason) from None
        except RecursionError:
            raise TritonTokenizerError(reason="its chat template is nested too deeply") from None
        self._special_tokens = special_tokens

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """The template in chat_template.jinja, else that of tokenizer_config.json; None if there is none.

        Raises TritonTokenizerError.
        """
        path = directory / _TOKENIZER_CONFIG
        try:
            config = json.loads(path.read_bytes()) if path.is_file() else {}
            own = directory / TEMPLATE_FILE
            source = own.read_text(encoding="utf-8") if own.is_file() else config.get("chat_template")
            if isinstance(source, list):  # several, by name
                source = {one["name"]: one["template"] for one in source}.get("default")
            if source is None:
                return None
            return cls(source, {name: _text(config[name]) for name in _SPECIAL_TOKENS if config.get(name)})
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as problem:
            raise TritonTokenizerError(reason=f"its chat template cannot be read: {_why(problem)}") from None

    def render(
        self, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt that asks for the next turn; `arguments` are further variables of the template.

        Raises MessagesInvalid for messages that the template refuses, MemoryError when there is not enough.
        """
        parts = []
        length = 0
        try:
            defaults = {**self._special_tokens, "tools": None, "add_generation_prompt": True}
            # As one mapping: a name of the sender's that is also a parameter's would be Python's error.
            for part in self._template.generate({**defaults, **(arguments or {}), "messages": messages}):
                length += len(part)
                if length > _MAX_OUTPUT:
                    raise MessagesInvalid(reason=f"the prompt has more than {_MAX_OUTPUT} characters")
                parts.append(part)
        except (MessagesInvalid, MemoryError):
            raise
        except Exception as refused:  # a template is a program: it may raise anything
            raise MessagesInvalid(
                reason=f"the model's chat template refuses them: {str(refused).rstrip('.! ')}"
            ) from None
        return "".join(parts)


def _refuse(reason: str) -> NoReturn:
    raise TemplateError(reason)


def _to_json(value: Any, indent: int | None = None) -> str:
    # Not Jinja's own filter, which escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _text(token: Any) -> str:
    """A special token: a string, or an object whose `content` is that string."""
    return str(token["content"] if isinstance(token, dict) else token)


def _why(problem: Exception) -> str:
    """Why the files of a template could not be read."""
    match problem:
        case OSError():
            return reason_of(problem)
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case ValueError() | RecursionError():
            return f"{_TOKENIZER_CONFIG} {why_no_json(problem)}"
        case _:
            return f"{_TOKENIZER_CONFIG} does not have it as text, or as a list of named texts"
