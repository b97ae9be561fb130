"""The one error of the pruner."""

from __future__ import annotations


class Refused(Exception):
    """The file is not understood, and was left as it is; the text says why."""
