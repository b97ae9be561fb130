"""The chat template that a model is published with: from messages to the text of a prompt.

Jinja2, sandboxed, with what templates expect: the settings and additions of `apply_chat_template` in
Hugging Face's transformers (utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Self

from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import MessagesInvalid, TritonTokenizerError
from shared.unreadable import reason_of, why_no_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from jinja2.parser import Parser

TEMPLATE_FILE = "chat_template.jinja"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_SPECIAL_TOKENS_MAP = "special_tokens_map.json"
_SPECIAL_TOKENS = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_MAX_OUTPUT = 1 << 22  # characters
_PROBE = "what a user says"


class _Generation(Extension):
    """`{% generation %}` marks what the model wrote, for training; a prompt has its content alone."""

    tags = {"generation"}  # noqa: RUF012  Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatTemplate:
    """One model's template."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises TritonTokenizerError for a template that is not valid."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
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

        The special tokens stand in tokenizer_config.json, those of older models in special_tokens_map.json.

        Raises TritonTokenizerError.
        """
        try:
            config = _read(directory / _TOKENIZER_CONFIG)
            older = {} if "added_tokens_decoder" in config else _read(directory / _SPECIAL_TOKENS_MAP)
            tokens = _special_tokens(config, older)
            own = directory / TEMPLATE_FILE
            source = own.read_text(encoding="utf-8") if own.is_file() else config.get("chat_template")
            if isinstance(source, list):  # several, by name
                source = {one["name"]: one["template"] for one in source}.get("default")
            if source is None:
                return None
            return cls(source, tokens)
        except (OSError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as problem:
            raise TritonTokenizerError(reason=f"its chat template cannot be read: {_why(problem)}") from None

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
            defaults = {**self._special_tokens, "tools": None, "add_generation_prompt": True}
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


def _read(path: Path) -> Any:
    """What a file of the tokenizer holds; an empty mapping if there is no such file. Raises OSError."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as problem:
        why = f"its chat template cannot be read: {path.name} {why_no_json(problem)}"
        raise TritonTokenizerError(reason=why) from None


def _special_tokens(config: Any, older: Any) -> dict[str, str]:
    """Those that the model has, by name: each a string, or an object whose `content` is that string."""
    try:
        found = {name: older.get(name) or config.get(name) for name in _SPECIAL_TOKENS}
        return {
            name: str(token["content"] if isinstance(token, dict) else token)
            for name, token in found.items()
            if token
        }
    except (AttributeError, KeyError):
        files = f"{_TOKENIZER_CONFIG} or {_SPECIAL_TOKENS_MAP}"
        raise TritonTokenizerError(reason=f"{files} does not have its special tokens as text") from None


def _why(problem: Exception) -> str:
    """Why the files of a template could not be read."""
    match problem:
        case OSError():
            return reason_of(problem)
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case _:
            return f"{_TOKENIZER_CONFIG} does not have it as text, or as a list of named texts"
