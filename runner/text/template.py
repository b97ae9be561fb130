"""The prompt template: where the user's prompt and the system prompt go."""

from __future__ import annotations

from string import Formatter

from shared.errors import BadPromptTemplate, InvalidArgument, PromptRequired, PromptTemplateError

_MAX_CHARACTERS = 1 << 22
_MAX_SHOWN = 100


def fill_template(
    template: str, prompt: str, system_prompt: str = "", *, system_prompt_sent: bool = False
) -> str:
    """The formatted prompt: `template` with `{prompt}` and `{system_prompt}` filled in.

    `{{` and `}}` are literal braces, as in `str.format`; nothing else of its syntax is allowed, and what is
    filled in is never interpreted. `system_prompt_sent` says that the user sent the system prompt, so that it
    must not be lost; a default one is omitted if the template has no place for it.

    Raises PromptRequired, BadPromptTemplate, PromptTemplateError, and InvalidArgument for a prompt that is
    too long.
    """
    if (length := _longest(template, prompt, system_prompt)) > _MAX_CHARACTERS:
        reason = f"the filled-in template may have at most {_MAX_CHARACTERS} characters, not {length}"
        raise InvalidArgument(argument="prompt", value="too long", reason=reason)
    values = {"prompt": prompt, "system_prompt": system_prompt}
    filled = []
    fields = set()
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        reason = "a brace in it is neither doubled nor part of a field"
        raise PromptTemplateError(reason=reason) from None
    for literal, field, format_spec, conversion in parts:
        filled.append(literal)
        if field is None:
            continue
        if field not in values:
            shown = field if len(field) <= _MAX_SHOWN else f"{field[:_MAX_SHOWN]}..."
            raise PromptTemplateError(reason=f"it has the field {shown!r}")
        if format_spec or conversion:
            raise PromptTemplateError(reason=f"the field {field!r} has a conversion or a format")
        fields.add(field)
        filled.append(values[field])

    if "prompt" not in fields:
        raise BadPromptTemplate(reason="it lacks {prompt}")
    if system_prompt_sent and system_prompt and "system_prompt" not in fields:
        raise BadPromptTemplate(reason="a system_prompt was sent, but the template lacks {system_prompt}")
    formatted = "".join(filled)
    if not formatted.strip():
        raise PromptRequired
    return formatted


def _longest(template: str, prompt: str, system_prompt: str) -> int:
    """The most characters that can result: a short template may repeat a long prompt."""
    fields = (("{prompt}", prompt), ("{system_prompt}", system_prompt))
    return len(template) + sum(template.count(field) * len(value) for field, value in fields)
