"""Documents that are made from the code: write them, or check that the committed ones are fresh."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parents[1]


def stale(documents: Mapping[str, str]) -> list[str]:
    """Those of `documents` (text by path in the checkout) that are missing there or differ."""
    return [
        path
        for path, text in documents.items()
        if not (ROOT / path).is_file() or (ROOT / path).read_text(encoding="utf-8") != text
    ]


def main(module: str, documents: Mapping[str, str]) -> None:
    """`python -m MODULE` writes the documents; with `--check` it only exits with 1 when one is stale."""
    if sys.argv[1:] == ["--check"]:
        if found := stale(documents):
            sys.exit(f"stale: {', '.join(found)}; run `python -m {module}`")
    elif sys.argv[1:]:
        sys.exit(f"usage: python -m {module} [--check]")
    else:
        for path in stale(documents):
            (ROOT / path).write_text(documents[path], encoding="utf-8")
