"""The prompt template: where the user's prompt and the system prompt go."""

from __future__ import annotations

from shared.errors import BadPromptTemplate, InvalidArgument, PromptRequired
from shared.prompt_template import parts

_MAX_CHARACTERS = 1 << 22


def fill_template(
    template: str, prompt: str, system_prompt: str = "", *, system_prompt_sent: bool = False
) -> str:
    """The formatted prompt: `template` with `{prompt}` and `{system_prompt}` filled in.

    What is filled in is never interpreted. `system_prompt_sent` says that the user sent the system prompt, so
    that it must not be lost; a default one is omitted if the template has no place for it.

    Raises PromptRequired, BadPromptTemplate, PromptTemplateError, and InvalidArgument for a prompt that is
    too long.
    """
    if (length := _longest(template, prompt, system_prompt)) > _MAX_CHARACTERS:
        reason = f"the filled-in template may have at most {_MAX_CHARACTERS} characters, not {length}"
        raise InvalidArgument(argument="prompt", value=f"{len(prompt)} characters long", reason=reason)
    values = {"prompt": prompt, "system_prompt": system_prompt}
    found = parts(template)
    fields = {field for _, field in found}
    if system_prompt_sent and system_prompt and "system_prompt" not in fields:
        raise BadPromptTemplate(reason="a system_prompt was sent, but the template lacks {system_prompt}")
    formatted = "".join(literal + ("" if field is None else values[field]) for literal, field in found)
    if not formatted.strip():
        raise PromptRequired
    return formatted


def _longest(template: str, prompt: str, system_prompt: str) -> int:
    """The most characters that can result: a short template may repeat a long prompt."""
    fields = (("{prompt}", prompt), ("{system_prompt}", system_prompt))
    return len(template) + sum(template.count(field) * len(value) for field, value in fields)
