"""The model as TensorRT-LLM's tools find it: without code, which they would load with trust_remote_code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CODE = ".py"
_NAMES_CODE = "auto_map"  # of classes by module, which may also be in other models on the hub


def lay_out(model: Path, place: Path) -> None:
    """Make the folder `place` of links to the files of `model`: all but its code, and its JSON files without
    what names code.
    """
    for path in sorted(model.rglob("*")):
        if not path.is_file() or path.suffix == _CODE:
            continue
        own = place / path.relative_to(model)
        own.parent.mkdir(parents=True, exist_ok=True)
        text = _without_code(path) if path.name.endswith("config.json") else None
        if text is None:
            own.symlink_to(path.resolve())
        else:
            own.write_text(text, encoding="utf-8")


def _without_code(path: Path) -> str | None:
    """The text of a JSON file without the keys that name code; None if it has none."""
    try:
        content = json.loads(path.read_bytes())
        kept = _pruned(content)
        return None if kept == content else json.dumps(kept, indent=2)
    except (ValueError, RecursionError):
        return None  # nor could transformers read it


def _pruned(value: object) -> object:
    if isinstance(value, dict):
        return {key: _pruned(one) for key, one in value.items() if key != _NAMES_CODE}
    return [_pruned(one) for one in value] if isinstance(value, list) else value
