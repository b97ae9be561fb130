"""docs/errors.md, made from the error classes."""

from __future__ import annotations

from string import Formatter

from shared.errors import REGISTRY, CogTritonError, State

CATEGORIES = {
    "E1": "The request",
    "E2": "Triton and the engine, while serving",
    "E3": "Building an engine",
    "E4": "Starting a runner, and measuring a server",
}

INTRO = """\
# Errors

Made from `shared/errors` by `make docs`; do not edit.

Every error that has a code is one line: the code, the name, what is wrong, what to do.

    E1002 PromptTooLong: The prompt has 5000 tokens; the maximum input length is 4095. Send a shorter prompt.

A code is `E[category][subcategory][sequence]`. It keeps its meaning forever, so it is safe to match on; the
text after the name may be reworded at any time. Words in braces stand for what the error is about, except the
fields of a template in E1004 and the JSON in E1005.

**State.** *active*: can occur. *reserved*: had a meaning once, is no longer raised, and will never get
another one.

**Who can fix it.** *user*: the sender of the request. *operator*: the person who runs the image or writes
the config. *engine*: nobody has to; trying again may help. *us*: a bug in cog-triton, please report it.
"""

HEADER = "| code | name | state | who can fix it | what is wrong | what to do |\n|---|---|---|---|---|---|\n"


def page() -> str:
    """The text of docs/errors.md."""
    sections = [INTRO]
    for prefix, title in CATEGORIES.items():
        kinds = [REGISTRY[code] for code in sorted(REGISTRY) if code.startswith(prefix)]
        sections.append(f"## {prefix}xxx: {title}\n\n{HEADER}{''.join(map(_row, kinds))}")
    return "\n".join(sections)


def _row(kind: type[CogTritonError]) -> str:
    state = kind.state if kind.state is State.ACTIVE else f"*{kind.state}*"
    cells = (kind.code, kind.name(), state, kind.fixed_by, _text(kind.message), _text(kind.remedy))
    return f"| {' | '.join(cells)} |\n"


def _text(template: str) -> str:
    """The template as readers see it: `{value!r}` as `{value}`, doubled braces single."""
    return "".join(
        literal + (f"{{{field}}}" if field else "") for literal, field, _, _ in Formatter().parse(template)
    ).replace("|", "\\|")
