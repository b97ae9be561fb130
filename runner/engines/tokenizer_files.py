"""What an engine needs to know about its model's tokenizer without creating one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty when there is none: what needs the tokenizer reports the fault."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def eos_token(files: Path) -> str | None:
    """The text of `eos_token` in tokenizer_config.json; None if that does not say."""
    token = read_object(files / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
