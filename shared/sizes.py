"""Bytes as people read them; standard library only."""

from __future__ import annotations


def readable(size: int) -> str:
    """`3.6 MB`: one decimal of the largest unit (of 1000) that leaves something before it."""
    if size < 1000:
        return f"{size} bytes"
    amount = float(size)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"
