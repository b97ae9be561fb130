"""The lock files: where they are, how they look, and how they are replaced."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import UnionType

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "nix/locks"

Row: TypeAlias = dict[str, Any]
Document: TypeAlias = dict[str, Any]
# Members and their types; for a list of objects, the shape of each.
Shape: TypeAlias = Mapping[str, "type | UnionType | Shape"]


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


def content(path: Path) -> str:
    """The text of a file. Raises LockProblem when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise LockProblem(f"{path.name} cannot be read; restore it from git.") from error


def read(path: Path, shape: Shape | None = None) -> Document:
    """The document in a file, which has at least what `shape` says. Raises LockProblem when it has not."""
    try:
        document = json.loads(content(path))
    except ValueError as error:
        raise LockProblem(f"{path.name} cannot be read as JSON; restore it from git.") from error
    if not isinstance(document, dict):
        raise LockProblem(f"{path.name} is not a JSON object; restore it from git.")
    if place := next(_lacking(document, shape or {}), None):
        raise LockProblem(f"{path.name}: `{place}` is missing or of another type; restore it from git.")
    return document


def _lacking(found: Document, shape: Shape, at: str = "") -> Iterator[str]:
    """Where it is not as `shape` says."""
    for key, kind in shape.items():
        place, value = f"{at}{key}", found.get(key)
        if not isinstance(kind, Mapping):
            if key not in found or not isinstance(value, kind):
                yield place
        elif not isinstance(value, list):
            yield place
        else:
            for number, row in enumerate(value):
                within = f"{place}[{number}]"
                yield from _lacking(row, kind, f"{within}.") if isinstance(row, dict) else (within,)


def write(path: Path, document: Document) -> bool:
    """Replace a file completely or not at all; return whether it changed. Raises LockProblem."""
    wanted = text(document)
    try:
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
    except OSError as error:
        raise LockProblem(f"{path} cannot be written: {error.strerror}.") from error
    return True
