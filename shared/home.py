"""HOME, and what to do without one; standard library only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

SCRATCH = "COG_TRITON_SCRATCH"
"""A folder that whoever started this process removes in the end: it takes the place of an unusable one."""


def home() -> Path:
    """HOME, or what the system knows of the user; `/`, as in containers, for one whom it does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def writable_home(scratch: str | Path | None) -> str:
    """HOME where it can be written to, else a new directory in `scratch`.

    flashinfer, which TensorRT-LLM imports, makes folders under it right away, and fails where that is not
    allowed: in a container whose user or file system is not what the image expects.
    """
    own = os.environ.get("HOME", "")
    if os.access(own, os.W_OK | os.X_OK):
        return own
    return tempfile.mkdtemp(prefix="cog-triton-home-", dir=scratch)
