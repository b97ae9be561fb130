"""The one error of these tools."""

from __future__ import annotations


class Problem(Exception):
    """Something the user can act on; the text is one sentence that says what to do."""
