"""The lock files: where they are, how they look, and how they are replaced."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "nix/locks"

Row: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]


class LockProblem(Exception):
    """What prevents a lock, in one sentence that says what to do."""


def text(document: Document) -> str:
    """JSON with one line per list member, so that a new version changes one line."""
    members = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n    ".join(json.dumps(member, ensure_ascii=False) for member in value)
            shown = f"[\n    {lines}\n  ]"
        else:
            shown = json.dumps(value, ensure_ascii=False)
        members.append(f"  {json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def read(path: Path) -> Document:
    """The document in a file. Raises LockProblem when it is not one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LockProblem(f"{path.name} cannot be read as JSON; restore it from git.") from error
    if not isinstance(document, dict):
        raise LockProblem(f"{path.name} is not a JSON object; restore it from git.")
    return document


def write(path: Path, document: Document) -> bool:
    """Replace a file completely or not at all; return whether it changed."""
    wanted = text(document)
    if path.is_file() and path.read_text(encoding="utf-8") == wanted:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(wanted)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
    return True
