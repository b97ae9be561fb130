"""Faults that tests seed: differences between a stand-in and what we assume of the real one."""

import sys
from pathlib import Path

FILE = "faults"
"""At the root of the environment: names of faults, one in a line."""


def seeded(name: str) -> bool:
    """Whether the environment of this process has that fault."""
    path = Path(sys.prefix, FILE)
    return path.is_file() and name in path.read_text().splitlines()
