"""Prompt templates: text with the fields {prompt} and {system_prompt}."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING

from shared.errors import BadPromptTemplate, PromptTemplateError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIELDS = ("prompt", "system_prompt")
_MAX_SHOWN = 100


def parts(template: str) -> list[tuple[str, str | None]]:
    """Its texts, each with the field that follows it, if one does.

    `{{` and `}}` are literal braces, as in `str.format`; nothing else of its syntax is allowed. Raises
    PromptTemplateError, and BadPromptTemplate for one without `{prompt}`.
    """
    try:
        found = list(_parts(template))
    except ValueError:
        reason = "a brace in it is neither doubled nor part of a field"
        raise PromptTemplateError(reason=reason) from None
    if not any(field == "prompt" for _, field in found):
        raise BadPromptTemplate(reason="it lacks {prompt}")
    return found


def checked(template: str) -> str:
    """`template`, for a setting; an empty one counts as unset. Raises ValueError, to follow its name."""
    try:
        if template:
            parts(template)
    except (PromptTemplateError, BadPromptTemplate) as error:
        raise ValueError(f"is not a valid template: {error.details['reason']}") from None
    return template


def _parts(template: str) -> Iterator[tuple[str, str | None]]:
    for literal, field, format_spec, conversion in Formatter().parse(template):
        if field is not None and field not in _FIELDS:
            shown = field if len(field) <= _MAX_SHOWN else f"{field[:_MAX_SHOWN]}..."
            raise PromptTemplateError(reason=f"it has the field {shown!r}")
        if format_spec or conversion:
            raise PromptTemplateError(reason=f"the field {field!r} has a conversion or a format")
        yield literal, field
