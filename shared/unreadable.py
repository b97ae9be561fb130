"""Why a file cannot be read, in our words."""

from __future__ import annotations

FORBIDDEN = "this user has no permission to read it"


def reason_of(error: OSError) -> str:
    """The end of a sentence about a file."""
    return FORBIDDEN if isinstance(error, PermissionError) else str(error.strerror)
