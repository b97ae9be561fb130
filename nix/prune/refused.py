"""The one error of the pruner."""

from __future__ import annotations


class Refused(Exception):
    """The file is not understood, and was left unchanged; the text says why."""
