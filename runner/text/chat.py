"""The chat template that a model is published with: from messages to the text of a prompt.

Jinja2, sandboxed, with what templates expect: the additions of `apply_chat_template` in Hugging Face's
transformers (utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self

from jinja2 import TemplateError

from shared.chat_template import environment, published, validity
from shared.errors import MessagesInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_MAX_OUTPUT = 1 << 22  # characters
_ALWAYS_PASSED = {"tools": None, "documents": None, "add_generation_prompt": True}
"""Beside the messages. Templates tell what is None from what is not defined."""
_PROBE = "what a user says"


class ChatTemplate:
    """One model's template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str | list[str]]) -> None:
        """Raises TritonTokenizerError for a template that is not valid."""
        jinja = environment()
        jinja.filters["tojson"] = _to_json
        jinja.globals["raise_exception"] = _refuse
        jinja.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        with validity():
            self._template = jinja.from_string(source)
        self._special_tokens = special_tokens

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """The template of the model whose tokenizer is in `directory`; None if it has none.

        Raises TritonTokenizerError.
        """
        found = published(directory)
        return None if found is None else cls(*found)

    def render(
        self, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any] | None = None
    ) -> str:
        """The prompt that asks for the next turn; `arguments` are further variables of the template.

        Raises MessagesInvalid for messages that the template refuses, MemoryError when there is not enough.
        """
        if self._wants_parts:
            messages = [{**message, "content": _in_parts(message["content"])} for message in messages]
        return self._render(messages, arguments or {})

    @cached_property
    def _wants_parts(self) -> bool:
        """Whether the template takes content in parts alone, as those of models that see images may: a text
        they leave out, or refuse.
        """
        return self._leaves_out(_PROBE) and not self._leaves_out(_in_parts(_PROBE))

    def _leaves_out(self, content: Any) -> bool:
        """Whether the prompt is without what the user says, if that is given in this form."""
        try:
            return _PROBE not in self._render([{"role": "user", "content": content}], {})
        except MessagesInvalid:
            return True

    def _render(self, messages: Sequence[Mapping[str, Any]], arguments: Mapping[str, Any]) -> str:
        parts = []
        length = 0
        try:
            defaults = {**self._special_tokens, **_ALWAYS_PASSED}
            # As one mapping: a name of the sender's that is also a parameter's would be Python's error.
            for part in self._template.generate({**defaults, **arguments, "messages": messages}):
                length += len(part)
                if length > _MAX_OUTPUT:
                    raise MessagesInvalid(reason=f"the prompt has more than {_MAX_OUTPUT} characters")
                parts.append(part)
        except (MessagesInvalid, MemoryError):
            raise
        except Exception as refused:  # a template is a program: it may raise anything
            why = str(refused).rstrip(".! ") or "it does not say why"
            raise MessagesInvalid(reason=f"the model's chat template refuses them: {why}") from None
        return "".join(parts)


def _refuse(reason: str) -> NoReturn:
    raise TemplateError(reason)


def _in_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Not Jinja's own filter, which escapes for HTML.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
