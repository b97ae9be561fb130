"""Every document that is made from the code, and which of them are stale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.schema import rendered_schema
from shared.layout import PROJECT_ROOT
from tools.docs import bridge_constants, cog_schema, config, environment, errors, tensorrt_llm

if TYPE_CHECKING:
    from collections.abc import Mapping


def documents() -> dict[str, str]:
    """All documents: text by path in the checkout."""
    return {
        "docs/config.md": config.page(),
        "docs/config.schema.json": rendered_schema(),
        "docs/environment.md": environment.page(),
        "docs/errors.md": errors.page(),
        "docs/tensorrt_llm.md": tensorrt_llm.page(),
        "runner/bridge/constants.h": bridge_constants.header(),
        **cog_schema.documents(),
    }


def stale(made: Mapping[str, str]) -> list[str]:
    """The paths of those of `made` that are missing from the checkout, or differ there."""
    return [
        path
        for path, text in made.items()
        if not (PROJECT_ROOT / path).is_file() or (PROJECT_ROOT / path).read_text(encoding="utf-8") != text
    ]
