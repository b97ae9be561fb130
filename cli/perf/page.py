"""The report as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_page(result: dict[str, Any], path: Path) -> None:
    """Write the page."""
