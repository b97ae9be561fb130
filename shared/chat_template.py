"""The chat template that a model is published with: where it stands, and how it is parsed.

Jinja2, with the settings and tags of `apply_chat_template` in Hugging Face's transformers
(utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from shared.errors import TritonTokenizerError
from shared.unreadable import reason_of, why_no_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jinja2.parser import Parser

_TEMPLATE_FILE = "chat_template.jinja"
_PROCESSOR_TEMPLATE = (
    "chat_template.json"  # of older models that also see or hear; its one key: chat_template
)
_TOKENIZER_CONFIG = "tokenizer_config.json"
_SPECIAL_TOKENS_MAP = "special_tokens_map.json"
_SPECIAL_TOKENS = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_EXTRA = "extra_special_tokens"  # of models that see: by name
_UNNAMED = "additional_special_tokens"
_MAX_SOURCE = 1 << 20  # characters; those of models have some thousands


class Published(NamedTuple):
    """A template, and the special tokens that it may name."""

    source: str
    special_tokens: dict[str, str | list[str]]


def check_template(directory: Path) -> None:
    """Raise TritonTokenizerError for a template that cannot be read, or parsed.

    It is not compiled: for that, Jinja computes constants, which can take any time and memory.
    """
    if (found := published(directory)) is not None:
        with validity():
            environment().parse(found.source)


def published(directory: Path) -> Published | None:
    """The template in chat_template.jinja, else in chat_template.json, else in tokenizer_config.json, as
    transformers and vLLM take it; None if there is none.

    The special tokens stand in tokenizer_config.json, those of older models in special_tokens_map.json.

    Raises TritonTokenizerError.
    """
    try:
        config = _read(directory / _TOKENIZER_CONFIG)
        older = {} if "added_tokens_decoder" in config else _read(directory / _SPECIAL_TOKENS_MAP)
        tokens = _special_tokens(config, older)
        own = directory / _TEMPLATE_FILE
        source = own.read_text(encoding="utf-8") if own.is_file() else _in_json(directory, config)
        if isinstance(source, list):  # several, by name
            source = {one["name"]: one["template"] for one in source}.get("default")
        if source is None:
            return None
        if not isinstance(source, str):
            raise TypeError
    except (OSError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as problem:
        raise TritonTokenizerError(reason=f"its chat template cannot be read: {_why(problem)}") from None
    if len(source) > _MAX_SOURCE:
        raise TritonTokenizerError(reason=f"its chat template has more than {_MAX_SOURCE} characters")
    return Published(source, tokens)


def _in_json(directory: Path, config: Any) -> Any:
    """What is given as the template beside other keys."""
    of_processor = _read(directory / _PROCESSOR_TEMPLATE).get("chat_template")
    return config.get("chat_template") if of_processor is None else of_processor


def environment() -> ImmutableSandboxedEnvironment:
    """What parses a template."""
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )


@contextmanager
def validity() -> Iterator[None]:
    """Raise TritonTokenizerError for a template that is not valid."""
    try:
        yield
    except TemplateSyntaxError as invalid:
        reason = f"its chat template is not valid: {invalid}".removesuffix(".")
        raise TritonTokenizerError(reason=reason) from None
    except RecursionError:
        raise TritonTokenizerError(reason="its chat template is nested too deeply") from None


class _Generation(Extension):
    """`{% generation %}` marks what the model wrote, for training; a prompt has its content alone."""

    tags = {"generation"}  # noqa: RUF012  Jinja declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def _read(path: Path) -> Any:
    """What a file of the tokenizer holds; an empty mapping if there is no such file. Raises OSError."""
    try:
        return json.loads(path.read_bytes()) if path.is_file() else {}
    except (ValueError, RecursionError) as problem:
        why = f"its chat template cannot be read: {path.name} {why_no_json(problem)}"
        raise TritonTokenizerError(reason=why) from None


def _special_tokens(config: Any, older: Any) -> dict[str, str | list[str]]:
    """Those that the model has, by name: each a string, or an object whose `content` is that string; and the
    list of those without a name.
    """
    try:
        extra = config.get(_EXTRA)
        found = dict(extra) if isinstance(extra, dict) else {}
        found |= {name: older.get(name) or config.get(name) for name in _SPECIAL_TOKENS}
        tokens: dict[str, str | list[str]] = {name: _text(token) for name, token in found.items() if token}
        unnamed = older.get(_UNNAMED) or config.get(_UNNAMED)
        return tokens | ({_UNNAMED: [*map(_text, unnamed)]} if isinstance(unnamed, list) and unnamed else {})
    except (AttributeError, KeyError):
        files = f"{_TOKENIZER_CONFIG} or {_SPECIAL_TOKENS_MAP}"
        raise TritonTokenizerError(reason=f"{files} does not have its special tokens as text") from None


def _text(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _why(problem: Exception) -> str:
    """Why the files of a template could not be read."""
    match problem:
        case OSError():
            return reason_of(problem)
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case _:
            files = f"{_PROCESSOR_TEMPLATE} or {_TOKENIZER_CONFIG}"
            return f"{files} does not have it as text, or as a list of named texts"
